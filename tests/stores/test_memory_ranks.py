"""Rows and columns owned by ranks."""

import uuid
from typing import Any

import pytest
import torch
from ranks import run_ranks
from store_jobs import ROWS, WIDTH, all_stores, step_ids, whole

from weft.comm.group import Group
from weft.errors import GraphError
from weft.stores import MemoryStore, SparseAdagrad, SparseAdam
from weft.stores.shared import SHM

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of torch's own Adagrad


def expected(kind: Any) -> torch.Tensor:
    """Return the rows that torch's own optimizer learns in one process, from sparse gradients."""
    table = torch.nn.Embedding(ROWS, WIDTH, sparse=True, _weight=whole())
    optimizer = kind(table.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        (table(step_ids(step)) ** 3).sum().backward()
        optimizer.step()
    return table.weight.detach()


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_read_write_and_learn_as_one_process_does(size: int) -> None:
    name = f"test-{uuid.uuid4().hex}"
    found = run_ranks(size, all_stores, name)
    assert not list(SHM.glob(f"*{name}*"))
    rivals = {"SparseAdam": torch.optim.SparseAdam, "SparseAdagrad": torch.optim.Adagrad}
    for rank in range(size):
        assert found[rank]["written"] == [
            10.0 * (size - 1) + 2,
            10.0 * (size - 1) + 1,
            whole()[4, 0].item(),
        ]
        for kind, rival in rivals.items():
            learned = torch.tensor(found[rank]["learned"][kind])
            assert (learned - expected(rival)).abs().max() < 1e-5, kind
            assert found[rank]["learned"][kind] == found[0]["learned"][kind]


@pytest.mark.parametrize(
    ("kind", "rival"), [(SparseAdam, torch.optim.SparseAdam), (SparseAdagrad, torch.optim.Adagrad)]
)
def test_one_rank_learns_as_torch_does(kind: Any, rival: Any) -> None:
    store = MemoryStore(whole())
    optimizer = kind(store, lr=0.1)
    for step in range(4):
        rows = store.gather(step_ids(step)).requires_grad_()
        (rows**3).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step(step_ids(step), rows.grad)
    assert (store.values - expected(rival)).abs().max() < 1e-5


def test_rows_that_nobody_or_two_hold_are_refused() -> None:
    for ids, message in (([0, 1, 1], "ascending"), ([0, 1, 3], "must be 0 … 2"), ([2, 1, 0], "ascending")):
        with pytest.raises(GraphError, match=message):
            MemoryStore(torch.ones(3, 1), node_ids=torch.tensor(ids), group=Group.alone())
