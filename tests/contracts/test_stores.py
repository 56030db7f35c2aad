"""What every store must do: rows in the order asked for, what was written, nothing outside, counts."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from weft.errors import GraphError, InputError
from weft.stores import CachedStore, MemoryStore, MmapStore, SharedStore, SlicedStore, Store, stores

NAMES = stores.names()
X = torch.arange(40.0).reshape(10, 4) / 3


def make(name: str, x: torch.Tensor, folder: Path) -> Store:
    if name == "mmap":
        MmapStore.write_rows(folder / "rows", x)
        return MmapStore(folder / "rows", mode="r+")
    if name == "shared":
        return SharedStore(f"contract-{uuid.uuid4().hex}", x)
    if name == "sliced":
        return SlicedStore(x, width=x.shape[1])
    if name == "cached":
        return CachedStore(MemoryStore(x), torch.arange(len(x)), capacity=4)
    kind: Any = stores[name]
    made: Store = kind(x.clone())
    return made


@pytest.fixture(params=NAMES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with make(request.param, X.clone(), tmp_path) as made:
        yield made


def test_rows_come_in_the_order_asked_for(store: Store) -> None:
    ids = torch.tensor([3, 0, 9, 3])
    assert torch.equal(store.gather(ids), X[ids])
    assert torch.equal(store.gather(ids.int()), X[ids])
    assert store.gather(torch.zeros(0, dtype=torch.int64)).shape == (0, 4)
    assert torch.equal(store[2:5], X[2:5])
    assert torch.equal(store[torch.arange(10) > 7], X[8:])


def test_it_looks_like_its_matrix(store: Store) -> None:
    assert (tuple(store.shape), store.dtype, len(store), store.num_rows) == ((10, 4), torch.float32, 10, 10)
    assert (store.dim(), store.size(1), store.numel()) == (2, 4, 40)


def test_ids_outside_are_named(store: Store) -> None:
    for ids, message in (([10], "row 10 asked for"), ([-1], "row -1"), ([0.5], "expected ids")):
        with pytest.raises(GraphError, match=message):
            store.gather(torch.tensor(ids))


def test_what_is_written_is_read_and_the_last_of_two_stays(store: Store) -> None:
    ids, rows = torch.tensor([8, 1, 8]), torch.full((3, 4), 7.0) * torch.tensor([[1.0], [2.0], [3.0]])
    if not store.writable:
        with pytest.raises(InputError, match="reading only"):
            store.write(ids, rows)
        return
    store.write(ids, rows)
    assert store.gather(torch.tensor([1, 8, 0]))[:, 0].tolist() == [14.0, 21.0, X[0, 0].item()]
    with pytest.raises(GraphError, match="shape"):
        store.write(ids, rows[:2])


def test_it_counts_what_was_read(store: Store) -> None:
    store.gather(torch.tensor([9, 1]))
    store.gather(torch.tensor([2]))
    assert store.counters.rows == 3
    assert store.counters.to_dict()["rows"] == 3


def test_it_describes_itself_and_closes_twice(store: Store) -> None:
    told = store.describe()
    assert told["store"] in NAMES
    assert told["shape"] == [10, 4]
    store.close()
    store.close()


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_are_legal(name: str, tmp_path: Path) -> None:
    with make(name, torch.zeros(0, 4), tmp_path) as empty:
        assert empty.gather(torch.zeros(0, dtype=torch.int64)).shape == (0, 4)


@pytest.mark.parametrize("name", NAMES)
def test_its_docstring_says_what_it_gives(name: str) -> None:
    assert (stores[name].__doc__ or "").strip()
