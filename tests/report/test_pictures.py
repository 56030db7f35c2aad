"""Maps of who sends to whom, and timelines."""

import re

from weft.report.pictures import heat_map, timeline


def drawn(values: list[list[float]]) -> str:
    return heat_map(
        values,
        names=[f"<{place}>" for place in range(len(values))],
        show=lambda value: f"{value:g} rows",
        tell=lambda row, column: f"{row} takes from {column}",
        label="rows & parts",
        rows="takes",
        columns="owns",
    )


def test_cells_are_as_dark_as_the_root_of_their_share() -> None:
    picture = drawn([[0.0, 4.0], [1.0, 0.0]])
    assert re.findall(r"fill-opacity:([\d.]+)", picture) == ["0.040", "1.000", "0.520", "0.040"]
    assert picture.count(" rows</text>") == 2, "an empty cell has no number"
    assert "0 takes from 1" in picture
    assert "&lt;0&gt;" in picture
    assert 'aria-label="rows &amp; parts"' in picture


def test_a_large_map_has_no_numbers_and_not_every_name() -> None:
    picture = drawn([[1.0] * 40 for _ in range(40)])
    assert " rows</text>" not in picture
    assert picture.count("&lt;") == 2 * 14  # every third, in both directions
    assert "fill-opacity:0.040" in drawn([[0.0]]), "nothing was sent at all"


def test_bars_of_a_timeline_are_placed_by_time_and_row() -> None:
    line = timeline(
        [(0, "t1", 0.0, 1.0), (1, "t2", 1.0, 1.0)], names=["a", "b"], ends=[1.0, 2.0], title="t", text="x"
    )
    starts = re.findall(r'class="fill (t\d)" d="M([\d.]+) ([\d.]+)V([\d.]+)H([\d.]+)', line)
    assert [(tone, float(left), float(right)) for tone, left, _, _, right in starts] == [
        ("t1", 0.0, 500.0),
        ("t2", 500.0, 1000.0),
    ]
    assert float(starts[0][2]) < float(starts[1][3]), "the second row is below the first"
    assert line.count('class="mark"') == 1, "the end of all is the frame"
