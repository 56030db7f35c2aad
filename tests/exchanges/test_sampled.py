"""Boundary sampling: one draw per row and epoch, the same at both ends, and fewer bytes."""

import exchange_jobs
import pytest
import torch
from ranks import run_ranks

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.errors import RecipeError
from weft.exchanges import check_exchange
from weft.exchanges.drift import Drift
from weft.exchanges.sampled import SampledExchange


def test_rows_are_drawn_by_id_so_that_ranks_agree_without_a_message() -> None:
    exact = run_ranks(4, exchange_jobs.rows_of, "exact")
    some = run_ranks(4, exchange_jobs.rows_of, {"name": "sampled", "p": 0.4})
    kept = {node for ids, _, _ in some for node in ids}
    for (all_ids, _, _), (ids, rows, _) in zip(exact, some):
        assert rows == ids
        assert ids == [node for node in all_ids if node in kept], "a node exists on all ranks or on none"
    assert 0 < sum(sent for _, _, sent in some) < sum(sent for _, _, sent in exact)


def test_nothing_travels_at_zero_and_everything_at_one() -> None:
    exact = run_ranks(2, exchange_jobs.rows_of, "exact")
    assert run_ranks(2, exchange_jobs.rows_of, {"name": "sampled", "p": 1.0}) == exact
    assert run_ranks(2, exchange_jobs.rows_of, {"name": "sampled", "p": 0.0}) == [([], [], 0)] * 2


def test_other_rows_are_drawn_each_epoch() -> None:
    kept = run_ranks(2, exchange_jobs.adjoint, {"name": "sampled", "p": 0.5})[0]
    assert len(set(kept)) > 3


def test_a_share_outside_zero_and_one_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"strategy\.exchange\.p: expected a number"):
        check_exchange({"name": "sampled", "p": 1.5})


def test_a_budget_takes_the_share_whose_expected_error_is_well_below_it() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    sampled = SampledExchange(
        HaloPlan(3, none, none, [0], none, [0], None), Group.alone(), torch.zeros(3).long()
    )
    sampled.budget(0.2)
    sampled.adapt(Drift([0.3], [0.5, 0.1]))
    assert abs(sampled.p - 0.25 / (0.25 + 0.16**2)) < 1e-12
    assert abs(((1 - sampled.p) / sampled.p) ** 0.5 * 0.5 - 0.8 * 0.2) < 1e-12
