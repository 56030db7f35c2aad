"""What every exchange promises: exact at its exact point, gradients the adjoint of what was brought, nothing
changed within a step, and the same steps after its state was taken and given back; on any number of ranks.
"""

import exchange_jobs
import pytest
from ranks import run_ranks

from weft.comm.group import Group
from weft.errors import InputError
from weft.exchanges import check_exchange, exchanges
from weft.strategies.halo.halo import Halo

NAMES = [name for name in exchanges.names() if name in Halo.exchanges]


def test_every_exchange_of_the_halo_is_in_the_cases_below() -> None:
    assert {case["name"] for case in exchange_jobs.EXACT_POINTS} == set(NAMES)
    for name in NAMES:
        assert {"name": name, **exchanges[name].exact_at} in exchange_jobs.EXACT_POINTS
    for case in [*exchange_jobs.EXACT_POINTS, *exchange_jobs.APPROXIMATE]:
        Halo.check({"exchange": case})


def test_the_promises_are_kept_in_one_process() -> None:
    assert exchange_jobs.promises(Group.alone()) == []


@pytest.mark.parametrize(
    ("size", "whole"),
    [(2, False), (4, False), *(pytest.param(size, True, marks=pytest.mark.slow) for size in (2, 4))],
    ids=["2", "4", "2-whole", "4-whole"],
)
def test_the_promises_are_kept_on_any_number_of_ranks(size: int, whole: bool) -> None:
    for wrong in run_ranks(size, exchange_jobs.promises, whole):
        assert wrong == []


def test_mistakes_in_a_recipe_are_named() -> None:
    with pytest.raises(InputError, match="did you mean 'sampled'"):
        check_exchange("sampeld")
    with pytest.raises(InputError, match=r"unknown key strategy\.exchange\.q"):
        check_exchange({"name": "sampled", "q": 0.1})
    with pytest.raises(InputError, match="expected a name"):
        check_exchange({"p": 0.1})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "quantised", "bits": 7}, r"strategy\.exchange\.bits: expected one of 2, 4, 8, 16, 32"),
        ({"name": "exact", "bits": 8}, r"unknown key strategy\.exchange\.bits"),
        ({"name": "stale", "lag": 2}, r"strategy\.exchange\.lag: expected a number .* got 2"),
        (
            {"name": "stale", "smooth_features": 1.0},
            r"strategy\.exchange\.smooth_features: expected a number",
        ),
        ({"name": "skip", "interval": 0}, r"strategy\.exchange\.interval: expected a number"),
        ({"name": "skip", "change": "little"}, r"strategy\.exchange\.change: expected a number"),
    ],
)
def test_options_that_cannot_be_are_refused_in_one_line(options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_exchange(options)
