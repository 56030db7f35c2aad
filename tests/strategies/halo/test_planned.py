"""Workers with `activation = "auto"`: the bits of keeping everything, and nothing sent twice."""

import planned_jobs
import pytest
from ranks import run_ranks

from weft.errors import RecipeError
from weft.strategies.halo.halo import Halo


def test_whatever_each_worker_chooses_the_bits_and_the_bytes_are_those_of_keeping_everything() -> None:
    for wrong in run_ranks(2, planned_jobs.same_bits_and_bytes):
        assert wrong == []


def test_batch_norm_over_workers_is_refused() -> None:
    assert all(
        "'auto' has each worker run layers again by itself" in said
        for said in run_ranks(2, planned_jobs.refuses_batch_norm)
    )


@pytest.mark.parametrize(
    "options",
    [
        {"exchange": "stale"},
        {"exchange": {"name": "quantised", "bits": 8}},
        {"drift": True},
    ],
)
def test_rows_that_differ_from_step_to_step_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(RecipeError, match="'auto' gives layers that run again the rows that came before"):
        Halo.check({"activation": "auto", **options})


def test_an_exact_exchange_is_planned() -> None:
    Halo.check({"activation": "auto"})
    Halo.check({"activation": "auto", "exchange": {"name": "exact"}})
