"""The table of faults names tests that are there, and says of each fault whether one tries it."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
NOT_TRIED: set[int] = set()


def test_every_fault_names_tests_that_are_there() -> None:
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|", TABLE, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 55))
    assert {int(number) for number, tests in rows if tests == "–"} == NOT_TRIED
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TABLE)
    assert len(named) >= 54 - len(NOT_TRIED)
    for path in {path for path, _ in named}:
        body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        there = {part.name for part in body if isinstance(part, ast.FunctionDef)}
        assert {name for where, name in named if where == path} <= there, path
