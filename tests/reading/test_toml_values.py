"""TOML of other people: its tables, or one line, whichever command reads it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft.config import parse_value, read_recipe
from weft.errors import RecipeError
from weft.pipeline.schema import read_schema
from weft.plan.cluster import read_cluster
from weft.reading.json_values import DEPTH
from weft.reading.toml_values import parse_toml
from weft.train.saved.prices import read_prices

CRASHERS = {
    "lists": "a = " + "[" * 100_000,
    "tables": "a = " + "{b = " * 100_000,
    "keys": f"[{'.'.join('a' * 30_000)}]",
    "digits": "a = " + "9" * 5_000,
    "bytes": b"\xff\xfe\x00",
    "cut": "[train",
}


@pytest.mark.parametrize("crasher", CRASHERS)
@pytest.mark.parametrize("reader", [read_recipe, read_schema, read_cluster, read_prices])
def test_what_no_reader_of_toml_can_take_is_one_line(
    tmp_path: Path, reader: Callable[[Path], Any], crasher: str
) -> None:
    path, text = tmp_path / "given.toml", CRASHERS[crasher]
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RecipeError, match=r"given\.toml: (not valid TOML|nested more than)") as caught:
        reader(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_setting_that_is_no_value_of_toml_is_plain_text() -> None:
    for text in (CRASHERS["lists"], CRASHERS["digits"]):
        assert parse_value(str(text)[4:]) == str(text)[4:]


def test_what_is_nested_less_deeply_is_read() -> None:
    depth = DEPTH - 1
    assert parse_toml(f"a = {'[' * depth}{']' * depth}", "it")["a"] is not None
