"""A cache in front of a store."""

import pytest
import torch

from weft.errors import InputError
from weft.graph import Graph
from weft.kernels import native
from weft.samplers import Loader, NeighborSampler
from weft.stores import CachedStore, MemoryStore, frequency, importance, out_degree
from weft.stores.cached import best, free_bytes

X = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))


def star() -> Graph:
    """Node 0 is a source of all others; 1 of two; edges back make a cycle."""
    edges = [[0, v] for v in range(1, 100)] + [[1, 2], [1, 3], [5, 0]]
    return Graph.from_edges(
        torch.tensor(edges).T, x=X, train_mask=torch.ones(100, dtype=torch.bool), y=[0, 1] * 50
    )


def test_hits_and_bytes_are_counted() -> None:
    behind = MemoryStore(X)
    store = CachedStore(behind, torch.arange(100), capacity=10)  # 90 … 99
    ids = torch.tensor([95, 3, 90, 89])
    assert torch.equal(store.gather(ids), X[ids])
    assert (store.counters.rows, store.counters.hits, store.counters.bytes) == (4, 2, 2 * 32)
    assert store.counters.hit_rate == 0.5


def test_without_the_core_the_same_rows_come() -> None:
    store = CachedStore(MemoryStore(X), torch.arange(100), capacity=60)
    ids = torch.randint(100, (500,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(store.gather(ids), X[ids])
    with native.disabled():
        assert torch.equal(store.gather(ids), X[ids])


def test_capacity_is_rows_a_share_or_what_fits() -> None:
    scores = torch.arange(100)
    assert CachedStore(MemoryStore(X), scores, capacity=0.25).capacity == 25
    assert CachedStore(MemoryStore(X), scores, capacity=1000).capacity == 100
    assert CachedStore(MemoryStore(X), scores).capacity == 100  # all of it fits
    assert free_bytes() > 0
    for wrong in (-1, 1.5, "much", True):
        with pytest.raises(InputError, match="capacity"):
            CachedStore(MemoryStore(X), scores, capacity=wrong)  # type: ignore[arg-type]


def test_by_default_half_of_free_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.stores import cached

    monkeypatch.setattr(cached, "free_bytes", lambda device: 64 * 40)
    assert CachedStore(MemoryStore(X), torch.arange(100)).capacity == 40  # half of 80 rows


def test_equal_scores_prefer_small_ids() -> None:
    assert best(torch.tensor([1.0, 5.0, 1.0, 1.0]), 3).tolist() == [0, 1, 2]


def test_a_cache_may_keep_fewer_bits() -> None:
    store = CachedStore(MemoryStore(X), torch.arange(100), capacity=50, storage="int8")
    assert (store[:] - X).abs().max() < 0.05
    assert torch.equal(store[:50], X[:50])
    store.write(torch.tensor([99, 2]), torch.ones(2, 8))
    assert (store.gather(torch.tensor([99, 2])) - 1).abs().max() < 1e-6


def test_rankers_put_the_source_of_many_first() -> None:
    graph = star()
    assert out_degree(graph).argmax() == 0
    assert importance(graph, hops=1)[:2].tolist() == [99.0, 2.0]
    # paths of up to two edges: 0 reaches 99 + 3 edges further; into it 5 → 0 and 0 → 5 → 0
    assert importance(graph, hops=2)[0] == (99 + 3) / 2
    counts = frequency(NeighborSampler(graph, [2, 2]), batch_size=10)
    assert counts.argmax() == 0
    assert counts[5] > 1  # a seed once, and a source of node 0 in every batch


def test_a_loader_reads_through_the_store_of_a_graph() -> None:
    graph = star()
    store = CachedStore(MemoryStore(X), out_degree(graph), capacity=5)
    stored = graph.with_data(x=store)
    for plain, through in zip(
        Loader(NeighborSampler(graph, [3, 2]), batch_size=30),
        Loader(NeighborSampler(stored, [3, 2]), batch_size=30),
    ):
        assert torch.equal(plain.x, through.x)
    assert store.counters.hits > 0
    assert store.counters.rows > store.counters.hits
    with pytest.raises(InputError, match="lie in a store"):
        stored.save("nowhere")


class TogetherStore(MemoryStore):
    """Notes what it is asked for, as one rank of several; another one has 4 calls to make."""

    collective = True

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__(x)
        self.asked: list[int] = []

    def most(self, count: int) -> int:
        return max(count, 4)

    def gather(self, ids: torch.Tensor) -> torch.Tensor:
        self.asked.append(len(ids))
        return super().gather(ids)


@pytest.mark.parametrize(
    ("capacity", "asked"), [(10, [4, 4, 2, 0]), (0, [0, 0, 0, 0]), (18, [4, 4, 4, 4, 2])]
)
def test_a_collective_store_is_asked_in_pieces_as_often_on_every_rank(
    capacity: int, asked: list[int]
) -> None:
    behind = TogetherStore(X)
    store = CachedStore(behind, torch.arange(100), capacity=capacity, chunk=4)
    assert behind.asked == [0, *asked]  # the first tells how rows are kept
    assert torch.equal(store.gather(torch.arange(100)), X)


def test_rows_that_the_store_behind_has_near_are_hits_too() -> None:
    inner = CachedStore(MemoryStore(X), torch.arange(100).roll(40), capacity=10)  # 30 … 39
    store = CachedStore(inner, torch.arange(100), capacity=10)  # 90 … 99
    ids = torch.tensor([95, 35, 3, 36])
    assert torch.equal(store.gather(ids), X[ids])
    assert (store.counters.rows, store.counters.hits) == (4, 3)
    assert torch.equal(store.gather(torch.tensor([3, 4])), X[[3, 4]])
    assert (store.counters.rows, store.counters.hits) == (6, 3), "hits of a call before count once"


class OwnRows(MemoryStore):
    """Has two rows in this rank's own memory."""

    @property
    def local_ids(self) -> torch.Tensor:
        return torch.tensor([0, 99])


def test_rows_of_this_rank_are_cached_last_also_behind_those_that_nobody_reads() -> None:
    held = CachedStore(OwnRows(X), torch.arange(100.0), capacity=3)
    assert (held.place >= 0).nonzero().flatten().tolist() == [96, 97, 98]
    unread = CachedStore(OwnRows(X), torch.zeros(100), capacity=98)
    assert (unread.place < 0).nonzero().flatten().tolist() == [0, 99]
    assert unread.wanted(torch.ones(100))[[0, 1, 99]].tolist() == [-1, 1, -1]
