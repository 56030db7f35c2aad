"""Optimizers of rows that are learned."""

from typing import Any

import pytest
import torch
from store_jobs import LEARNERS, ROWS, WIDTH, learned_in_torch, step_ids, whole

from weft.stores import MemoryStore

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of torch's own Adagrad


@pytest.mark.parametrize("kind", LEARNERS)
def test_one_rank_learns_as_torch_does(kind: Any) -> None:
    store = MemoryStore(whole())
    optimizer = kind(store, lr=0.1)
    for step in range(4):
        assert len(step_ids(step).unique()) < len(step_ids(step)), "an id is there twice"
        rows = store.gather(step_ids(step)).requires_grad_()
        rows.cos().sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step(step_ids(step), rows.grad)
    assert (store.values - learned_in_torch(kind)).abs().max() < 1e-5


@pytest.mark.parametrize("kind", LEARNERS)
def test_a_step_without_gradients_changes_no_row(kind: Any) -> None:
    store = MemoryStore(whole())
    optimizer = kind(store, lr=0.1)
    optimizer.step(torch.zeros(0, dtype=torch.int64), torch.zeros(0, WIDTH))
    assert torch.equal(store.values, whole())


@pytest.mark.parametrize("kind", LEARNERS)
def test_rows_that_were_not_read_and_their_state_stay(kind: Any) -> None:
    store = MemoryStore(whole())
    optimizer = kind(store, lr=0.1)
    optimizer.step(torch.tensor([4, 2, 4]), torch.ones(3, WIDTH))
    others = [row for row in range(ROWS) if row not in (2, 4)]
    assert torch.equal(store.values[others], whole()[others])
    assert not torch.equal(store.values[2], whole()[2])
    held = {name: value for name, value in optimizer.state().items() if name not in ("steps", "rows")}
    assert all(not value[others].any() for value in held.values())


def test_state_of_row_wise_adagrad_is_a_number_a_row() -> None:
    optimizer = LEARNERS[2](MemoryStore(whole()), lr=0.1)
    assert optimizer.state()["total"].shape == (ROWS,)
