"""Pieces of HTML: text is escaped, bars stay within their box, numbers are set right."""

from weft.report.markup import Bar, bars, code, facts, fold, legend, panel, panels, small, strip, table

HOSTILE = '<script>&"'
SAFE = "&lt;script&gt;&amp;&quot;"


def test_every_text_is_escaped() -> None:
    pieces = [
        panel(HOSTILE, ""), legend([("t1", HOSTILE, HOSTILE)]), facts([(HOSTILE, HOSTILE)]),
        table([HOSTILE], [[HOSTILE]], caption=HOSTILE), fold(HOSTILE, ""), bars([Bar(HOSTILE, 1, HOSTILE)]),
        code(HOSTILE), small(HOSTILE),
    ]  # fmt: skip
    assert [piece.count(SAFE) for piece in pieces] == [1, 2, 2, 3, 1, 2, 1, 1]
    assert not any("<script>" in piece for piece in pieces)


def test_bars_are_no_longer_than_their_box_and_no_shorter_than_nothing() -> None:
    drawn = bars([Bar("a", 0.5, ""), Bar("b", 7.0, ""), Bar("c", -1.0, "")])
    assert [part.split("%")[0] for part in drawn.split("width:")[1:]] == ["50.00", "100.00", "0.00"]
    assert strip([("t1", 0.25), ("t2", 0.0)]).count("<i ") == 1, "a share of nothing is not drawn"


def test_numbers_are_set_right_after_the_columns_of_words() -> None:
    drawn = table(["name", "kind", "count"], [["a", "b", "3"]], words=2, tones=["t4"])
    assert drawn.count('class="num"') == 2, "head and cell of the third column"
    assert '<td class="num">3</td>' in drawn
    assert '<i class="square t4"></i>a' in drawn


def test_panels_without_content_are_left_out() -> None:
    assert panels("", "") == ""
    assert panels("", "<p>x</p>") == '<div class="panels"><p>x</p></div>'
    assert 'class="panel wide"' in panel("t", "b", wide=True)
