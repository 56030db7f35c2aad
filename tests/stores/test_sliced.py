"""Columns owned by ranks; the exchange itself is tested with the sharded store's ranks."""

import pytest
import torch

from weft.comm.group import Group
from weft.errors import GraphError
from weft.stores import SlicedStore
from weft.stores.sliced import slice_bounds


def test_columns_are_shared_out_evenly() -> None:
    assert slice_bounds(10, 4) == [0, 2, 5, 7, 10]
    assert slice_bounds(2, 3) == [0, 0, 1, 2]


def test_alone_every_column_is_here() -> None:
    x = torch.rand(6, 3)
    store = SlicedStore(x, width=3)
    assert store.columns == slice(0, 3)
    assert torch.equal(store.own(torch.tensor([5, 0])), x[[5, 0]])
    store.gather(torch.tensor([1]))
    assert (store.counters.hits, store.counters.bytes) == (1, 0)


def test_wrong_columns_are_refused() -> None:
    with pytest.raises(GraphError, match="rank 0 holds 4 of 4 columns"):
        SlicedStore(torch.ones(2, 3), width=4, group=Group.alone())
