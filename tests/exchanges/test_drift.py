"""The drift meter tells the true error of an exchange and changes nothing; a budget is kept by it."""

from typing import Any

import drift_jobs
import pytest
import torch
from ranks import run_ranks

from weft.comm.group import Group
from weft.errors import RecipeError
from weft.exchanges.drift import _existing
from weft.strategies.halo.halo import Halo


@pytest.fixture(scope="module")
def told() -> dict[str, dict[str, Any]]:
    """What two ranks tell of every case, the same."""
    first, second = run_ranks(2, drift_jobs.everything)
    assert first == second
    return first


def test_what_is_exact_has_no_error(told: dict[str, Any]) -> None:
    for name in ("exact", "all sampled"):
        assert len(told[name]["errors"][0]) == 2, "one for each exchange of a model of three layers"
        assert max(max(errors) for errors in told[name]["errors"]) == 0.0


def test_measuring_changes_nothing(told: dict[str, Any]) -> None:
    losses = told["sampled, not measured"]["losses"]
    assert told["sampled"]["losses"] == losses
    assert told["sampled, every third"]["losses"] == losses
    assert told["sampled, not measured"]["errors"] == [[]] * drift_jobs.EPOCHS
    assert [bool(errors) for errors in told["sampled, every third"]["errors"]] == [True, False, False] * 2


def test_coarser_exchanges_err_more(told: dict[str, Any]) -> None:
    names = ("8 bits", "2 bits", "stale", "sampled", "none sampled")
    errors = {name: max(max(each) for each in told[name]["errors"][1:]) for name in names}
    assert 0 < errors["8 bits"] < errors["2 bits"]
    assert errors["8 bits"] < 0.01
    assert min(errors[name] for name in ("stale", "sampled", "none sampled")) > errors["8 bits"]
    assert max(told["stale"]["errors"][0]) == 0.0, "the first step waits"
    assert [max(each) > 0 for each in told["skip"]["errors"]] == [False, True, True] * 2


def test_errors_are_those_of_the_mean_over_neighbours(told: dict[str, Any]) -> None:
    doubled, missing, half = told["meter"]["errors"]
    # With rows of ones the exact mean is 1, and both are wrong by the share of remote neighbours.
    assert doubled == pytest.approx(missing)
    assert 0 < doubled <= 1
    assert 0 < half <= 1
    assert all(0 < each <= 1 for each in told["meter"]["spread"])


def test_a_budget_chooses_p_bits_or_change(told: dict[str, Any]) -> None:
    tight, wide = (told[f"sampled for {error}"]["chosen"] for error in ("0.2", "2"))
    assert all(0.01 <= loose["p"] < close["p"] <= 1 for loose, close in zip(wide, tight))
    assert told["coded for 0.2"]["chosen"][-1]["bits"] < 8
    assert told["coded for 1e-4"]["chosen"][-1]["bits"] == 16
    small, large = (told[f"skip for {error}"]["chosen"][-1]["change"] for error in ("1e-3", "1"))
    assert small < 0.1 < large
    assert max(max(each) for each in told["coded for 0.2"]["errors"]) < 0.4


def test_nobody_else_is_needed() -> None:
    alone = drift_jobs.trained(Group.alone(), exchange={"name": "sampled", "p": 0.3}, error=0.1)
    assert alone["errors"] == [[0.0, 0.0]] * drift_jobs.EPOCHS


@pytest.mark.parametrize("name", ["exact", "stale"])
def test_a_budget_on_what_leaves_no_choice_is_refused(name: str) -> None:
    with pytest.raises(RecipeError, match=r"strategy\.error: .* use quantised, sampled, skip"):
        Halo.check({"exchange": name, "error": 0.02})


def test_of_a_sampled_halo_each_row_is_compared_with_its_own() -> None:
    kept, rows = torch.tensor([True, False, True]), torch.tensor([[1.0], [3.0]])
    assert _existing(rows, kept, 2.0, torch.tensor([2, 0, 1])).flatten().tolist() == [6.0, 2.0, 0.0]
