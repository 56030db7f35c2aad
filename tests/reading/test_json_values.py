"""JSON of other people: the value, or one line that names the place that is wrong."""

from pathlib import Path
from typing import Any

import pytest

from weft.errors import FormatError
from weft.reading.json_values import (
    DEPTH,
    Amount,
    Each,
    Maybe,
    WholeNumber,
    expect_shape,
    parse_json,
    read_json,
)

SHAPE = {
    "count": WholeNumber(1, 9),
    "names": [str],
    "by": Each({"share": float}),
    "note": Maybe(str),
    "rest": object,
}
RIGHT: dict[str, Any] = {"count": 3, "names": ["a"], "by": {"x": {"share": 1}}, "rest": [None], "more": 1}


def parsed(value: str) -> Any:
    return parse_json(value, "f.json", SHAPE)


def test_right_values_pass_with_what_nobody_asked_for() -> None:
    import json

    assert parsed(json.dumps(RIGHT)) == RIGHT
    assert parsed(json.dumps(RIGHT | {"note": "x"}))["note"] == "x"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"count": 0}, r"count must be a whole number in 1 … 9, got 0"),
        ({"count": True}, r"count must be a whole number in 1 … 9, got True"),
        ({"count": 2.0}, r"count must be a whole number"),
        ({"names": ["a", 1]}, r"names\[1\] must be text, got 1"),
        ({"names": "a"}, r"names must be a list, got 'a'"),
        ({"by": {"x": {"share": "1"}}}, r"by\.x\.share must be a number, got '1'"),
        ({"by": {"x": {"share": True}}}, r"by\.x\.share must be a number"),
        ({"by": {"x": {}}}, r"lacks by\.x\.share"),
        ({"by": []}, r"by must be an object"),
        ({"note": 3}, r"note must be text"),
    ],
)
def test_the_wrong_place_is_named(change: dict[str, Any], told: str) -> None:
    import json

    with pytest.raises(FormatError, match=rf"^f\.json: {told}"):
        parsed(json.dumps(RIGHT | change))


@pytest.mark.parametrize("value", ["1", None, True, float("nan"), float("inf"), 0.5])
def test_an_amount_is_finite_and_not_too_small(value: Any) -> None:
    expect_shape({"a": 2.5, "b": 1}, Each(Amount(1)), "x")
    with pytest.raises(FormatError, match=r"x: a must be a number of at least 1, got"):
        expect_shape({"a": value}, {"a": Amount(1)}, "x")


@pytest.mark.parametrize(
    "text", ["{", "", "\x00", "[1,]", "[" * 100_000 + "]" * 100_000, "[" * (DEPTH + 2) + "]" * (DEPTH + 2)]
)
def test_no_json_and_deep_json_is_one_line(text: str) -> None:
    with pytest.raises(FormatError, match=r"^f\.json: (damaged, not valid JSON|nested more than)") as caught:
        parse_json(text, "f.json")
    assert "\n" not in str(caught.value)


def test_nesting_up_to_the_bound_is_read() -> None:
    parse_json("[" * DEPTH + "]" * DEPTH, "f.json")


def test_files_that_are_absent_or_too_large_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FormatError, match=r"a\.json: no such file"):
        read_json(tmp_path / "a.json")
    (tmp_path / "b.json").write_text("[" + "1," * 2000 + "1]")
    assert len(read_json(tmp_path / "b.json")) == 2001
    monkeypatch.setenv("WEFT_READ_LIMIT", "1kB")
    with pytest.raises(FormatError, match=r"b\.json: it would take"):
        read_json(tmp_path / "b.json")
