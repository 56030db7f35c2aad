"""What the tests of stores run on several ranks."""

from typing import Any

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.graph import Graph
from weft.stores import (
    CachedStore,
    MemoryStore,
    RowwiseAdagrad,
    SharedStore,
    SlicedStore,
    SparseAdagrad,
    SparseAdam,
    SparseSGD,
)
from weft.stores.sliced import slice_bounds

ROWS, WIDTH = 23, 5
LEARNERS = (SparseAdam, SparseAdagrad, RowwiseAdagrad, SparseSGD)


def whole() -> Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0))


def ids_of(group: Group, turn: int) -> Tensor:
    """Return ids with duplicates, other ones on each rank; none on the last rank in turn 2."""
    made = torch.Generator().manual_seed(100 * turn + group.rank)
    count = 0 if turn == 2 and group.rank == group.size - 1 else 9 + group.rank
    return torch.randint(ROWS, (count,), generator=made)


def all_stores(group: Group, name: str) -> dict[str, Any]:
    """Return what each rank found; every call is one of all ranks."""
    x, mine = whole(), torch.arange(group.rank, ROWS, group.size)
    found: dict[str, Any] = {}
    store = MemoryStore(x[mine], node_ids=mine, group=group)
    ranges = MemoryStore(x.tensor_split(group.size)[group.rank], group=group)
    near = CachedStore(store, torch.arange(ROWS), capacity=4 + group.rank)
    uneven = CachedStore(store, torch.arange(ROWS), capacity=5 * group.rank, chunk=2)  # the first holds none
    for turn in range(3):
        ids = ids_of(group, turn)
        for held in (store, ranges, near, uneven):
            assert torch.equal(held.gather(ids), x[ids])
    assert near.counters.hits > 0
    bounds = slice_bounds(WIDTH, group.size)
    sliced = SlicedStore(x[:, bounds[group.rank] : bounds[group.rank + 1]], width=WIDTH, group=group)
    for turn in range(3):
        ids = ids_of(group, turn)
        assert torch.equal(sliced.gather(ids), x[ids])
        assert torch.equal(sliced.own(ids), x[ids][:, sliced.columns])
    assert sliced.counters.bytes > 0
    found["written"] = _written(store, group)
    found["learned"] = {kind.__name__: _learned(kind, group) for kind in LEARNERS}
    _aggregated(group, name)
    return found


def _written(store: MemoryStore, group: Group) -> list[float]:
    ids = torch.tensor([3, 7, 3])  # every rank writes them: the last of the last rank stays
    store.write(ids, torch.full((3, WIDTH), 10.0 * group.rank) + torch.arange(3.0)[:, None])
    return store.gather(torch.tensor([3, 7, 4]))[:, 0].tolist()


def _learned(kind: Any, group: Group) -> list[list[float]]:
    """Three steps on a loss that each rank has a part of; then the state goes through a checkpoint."""
    mine = torch.arange(group.rank, ROWS, group.size)
    store = MemoryStore(whole()[mine], node_ids=mine, group=group)
    optimizer = kind(store, lr=0.1)
    for step in range(4):
        if step == 2:
            held = {key: value.clone() for key, value in optimizer.state().items()}
            store = MemoryStore(torch.zeros(len(mine), WIDTH), node_ids=mine, group=group)
            optimizer = kind(store, lr=0.1)
            optimizer.load_state(held)
        everything = step_ids(step)
        ids = everything.tensor_split(group.size)[group.rank]
        rows = store.gather(ids).requires_grad_()
        rows.cos().sum().backward()  # type: ignore[no-untyped-call]
        assert rows.grad is not None
        optimizer.step(ids, rows.grad)
    return store.gather(torch.arange(ROWS)).tolist()  # type: ignore[no-any-return]


def learned_in_torch(kind: Any) -> Tensor:
    """Return the rows that one process learns in torch: by its own optimizer, or a formula."""
    rivals = {
        SparseAdam: torch.optim.SparseAdam,
        SparseAdagrad: torch.optim.Adagrad,
        SparseSGD: torch.optim.SGD,
    }
    table = torch.nn.Embedding(ROWS, WIDTH, sparse=kind in rivals, _weight=whole())
    optimizer = rivals[kind](table.parameters(), lr=0.1) if kind in rivals else None
    totals = torch.zeros(ROWS)
    for step in range(4):
        table.zero_grad()
        table(step_ids(step)).cos().sum().backward()
        if optimizer is not None:
            optimizer.step()
            continue
        assert kind is RowwiseAdagrad
        assert table.weight.grad is not None
        with torch.no_grad():
            for row in step_ids(step).unique().tolist():  # Lerer et al., 2019: one sum per row
                gradient = table.weight.grad[row]
                totals[row] += (gradient * gradient).sum() / WIDTH
                table.weight[row] -= 0.1 / (totals[row].sqrt() + 1e-10) * gradient
    return table.weight.detach()


def step_ids(step: int) -> Tensor:
    return torch.randint(ROWS, (16,), generator=torch.Generator().manual_seed(step))


def _aggregated(group: Group, name: str) -> None:
    made = torch.Generator().manual_seed(5)
    graph = Graph.from_edges(torch.randint(ROWS, (2, 90), generator=made), num_nodes=ROWS)
    store = SharedStore(name, whole()) if group.rank == 0 else None
    group.barrier()
    store = store or SharedStore(name)
    into = store.init("sum", (ROWS, WIDTH))
    store.aggregate(graph, into, group=group)
    assert torch.equal(into[:], graph.block().aggregate(whole()))
    group.barrier()
    store.close()
