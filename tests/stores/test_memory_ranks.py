"""Rows and columns owned by ranks."""

import uuid

import pytest
import torch
from ranks import run_ranks
from store_jobs import LEARNERS, all_stores, learned_in_torch, whole

from weft.comm.group import Group
from weft.errors import GraphError
from weft.stores import MemoryStore
from weft.stores.shared import SHM

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of torch's own Adagrad


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_read_write_and_learn_as_one_process_does(size: int) -> None:
    name = f"test-{uuid.uuid4().hex}"
    found = run_ranks(size, all_stores, name)
    assert not list(SHM.glob(f"*{name}*"))
    for rank in range(size):
        assert found[rank]["written"] == [
            10.0 * (size - 1) + 2,
            10.0 * (size - 1) + 1,
            whole()[4, 0].item(),
        ]
        for kind in LEARNERS:
            learned = torch.tensor(found[rank]["learned"][kind.__name__])
            assert (learned - learned_in_torch(kind)).abs().max() < 1e-5, kind
            assert found[rank]["learned"][kind.__name__] == found[0]["learned"][kind.__name__]


def test_rows_that_nobody_or_two_hold_are_refused() -> None:
    for ids, message in (([0, 1, 1], "ascending"), ([0, 1, 3], "must be 0 … 2"), ([2, 1, 0], "ascending")):
        with pytest.raises(GraphError, match=message):
            MemoryStore(torch.ones(3, 1), node_ids=torch.tensor(ids), group=Group.alone())
