"""`weft selftest equivalence`: what it shows, and what its exit code says."""

import argparse
from pathlib import Path

import pytest

from weft.cli.equivalence import given_of, show, workers_of
from weft.cli.main import main
from weft.errors import InputError, WeftWarning
from weft.train.proof import Outcome

GOOD = Outcome(
    "halo exact", "halo exact: gcn, hub graph, float64", 2, error=1e-12, bound=1e-10, worst="losses"
)
BAD = Outcome("halo stale", "halo stale: gat, hub graph, float64", 2, error=1e-3, bound=1e-10, worst="losses")
REFUSED = Outcome("halo skip", "halo skip: gat", 2, error=0.0, bound=1e-10, refused="not on Tuesdays")


def test_a_pair_that_differs_is_named_with_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    assert show([GOOD, BAD]) == 1
    shown = capsys.readouterr().out
    assert "FAILED  2 workers, halo stale: gat, hub graph, float64: losses differs by 1.0e-03" in shown
    assert "1 of 2 cases FAILED" in shown


def test_refusals_are_told_and_prove_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert show([GOOD, REFUSED]) == 0
    shown = capsys.readouterr().out
    assert "refused: not on Tuesdays" in shown
    assert "1 cases take the steps of one process" in shown
    assert show([REFUSED]) == 1
    assert "nothing was proved" in capsys.readouterr().out


def test_numbers_of_workers_are_read_and_mistakes_refused() -> None:
    assert workers_of("1,2,4") == [1, 2, 4]
    for wrong in ("", "0", "two", "1,,2"):
        with pytest.raises(InputError, match="expected whole numbers"):
            workers_of(wrong)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["equivalence", "--graph", "nowhere.npz"], "no such file"),
        (["kernels", "recipe.toml"], "are for: weft selftest equivalence"),
        (["equivalence", "a.toml", "b.toml"], "expected one recipe"),
        (["equivalence", "--parts", "2", "kernel"], "did you mean 'kernels'"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_graph_replaces_the_recipe_s_source_and_what_belongs_to_it(tmp_path: Path) -> None:
    graph = tmp_path / "mine=1.npz"
    graph.touch()
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[data]\nname = "community"\nnodes = 500\nself_loops = true\n', encoding="utf-8")
    with pytest.warns(WeftWarning, match="data.nodes of the recipe dropped"):
        given = given_of(argparse.Namespace(graph=str(graph)), str(recipe), tmp_path)
    assert given is not None
    assert given.recipe.data == {"self_loops": True, "path": str(graph)}
