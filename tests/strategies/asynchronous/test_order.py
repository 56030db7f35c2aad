"""The order of a run comes back from its file, and nothing else does."""

from pathlib import Path

import pytest

from weft.errors import FormatError, RecipeError
from weft.strategies.asynchronous.order import Order, OrderLog, file_of

HEAD = {"workers": 2, "rank": 1, "intervals": 3, "staleness": 1, "seed": 0}


def written(folder: Path, since: int = 0) -> None:
    log = OrderLog(folder, HEAD, since=since)
    log.write("enter", 0, since, since)
    log.write("read", 0, since, [since, since + 1])
    log.write("read", 0, since, [])
    log.write("update", since)
    log.close()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written(tmp_path)
    order = Order(file_of(tmp_path, 1), HEAD)
    assert order.version(0, 0) == 0
    assert [order.read(0, 0, place) for place in (0, 1)] == [[0, 1], []]
    with pytest.raises(FormatError, match="ends within epoch 1 of interval 0; train for fewer epochs"):
        order.read(0, 0, 2)
    with pytest.raises(FormatError, match="ends before epoch 1 of interval 1"):
        order.version(1, 0)


def test_a_run_that_goes_on_keeps_what_was_before(tmp_path: Path) -> None:
    written(tmp_path)
    written(tmp_path, since=1)
    order = Order(file_of(tmp_path, 1), HEAD)
    assert (order.version(0, 0), order.version(0, 1)) == (0, 1)
    written(tmp_path, since=1)
    assert file_of(tmp_path, 1).read_text().count("enter") == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ('{"workers": 2}', "lacks rank"),
        ('["enter", 0, 0, 0]', "must be an object"),
        ('HEAD\n["enter", 0, 0]', "line 2: expected an event of enter, read, update"),
        ('HEAD\n["enter", 0, 0, -1]', r"line 2: \[2\] must be a whole number"),
        ('HEAD\n["read", 0, 0, ["x"]]', r"line 2: \[0\] must be a whole number"),
        ('HEAD\n[["x"], 0]', "line 2: expected an event"),
        ("HEAD\n" + "[" * 200 + "]" * 200, "line 2: nested more than"),
    ],
)
def test_what_is_no_order_is_refused(tmp_path: Path, text: str, message: str) -> None:
    written(tmp_path)
    path = file_of(tmp_path, 1)
    path.write_text(text.replace("HEAD", path.read_text().splitlines()[0]))
    with pytest.raises(FormatError, match=message):
        Order(path, HEAD)


def test_the_order_of_another_run_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(RecipeError, match="of a run with staleness = 1, this one has 2"):
        Order(file_of(tmp_path, 1), HEAD | {"staleness": 2})
