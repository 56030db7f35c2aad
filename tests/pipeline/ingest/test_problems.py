"""What is wrong with tables, told in one line each, and what a fix turns into a note."""

import pytest

from weft.errors import InputError, RecipeError
from weft.pipeline.ingest.problems import Problem, Problems, parse_fixes, show


def test_a_problem_is_one_line_with_its_place_count_and_remedy() -> None:
    told = Problem(
        "error",
        "dangling-edge",
        "edges knows",
        "no node has the id 3",
        "e.csv",
        1200,
        "dst",
        3,
        17,
        "drop-dangling",
    )
    assert told.line().startswith(
        "e.csv, row 1,200, column 'dst': no node has the id 3 (17 in all); --fix drop-"
    )
    assert Problem("note", "crlf", "nodes", "lines end in CRLF").line() == "nodes: lines end in CRLF"
    assert told.as_json()["value"] == "3"


def test_what_a_fix_takes_care_of_is_a_note() -> None:
    problems = Problems(fixes=frozenset(["drop-dangling"]))
    problems.add("error", "dangling-edge", "edges", "no such node", fix="drop-dangling")
    problems.check()
    (noted,) = problems.of("note")
    assert noted.message == "no such node; fixed by drop-dangling"
    assert noted.fix is None


def test_the_first_error_is_raised_and_other_kinds_are_counted_once() -> None:
    problems = Problems()
    kinds = [("null-id", "n"), ("not-finite", "n"), ("null-id", "n"), ("null-id", "m"), ("null-id", "m")]
    for kind, file in kinds:
        problems.add("error", kind, "nodes", "wrong", file=file)
    with pytest.raises(InputError, match=r"^n: wrong; 2 more, see them all with: weft validate$"):
        problems.check()
    alone = Problems()
    alone.add("error", "null-id", "nodes", "wrong")
    with pytest.raises(InputError, match=r"^nodes: wrong$"):
        alone.check()


def test_fixes_are_read_as_a_list_and_an_unknown_one_is_refused() -> None:
    assert parse_fixes(["drop-dangling, drop-duplicates,", "fill-missing"]) == {
        "drop-dangling",
        "drop-duplicates",
        "fill-missing",
    }
    with pytest.raises(RecipeError, match="did you mean 'drop-dangling'"):
        parse_fixes(["drop-danglin"])


def test_values_are_shown_short_and_on_one_line() -> None:
    assert show("a\nb") == "'a\\nb'"
    assert show(7) == "7"
    assert len(show("x" * 100)) == 58
