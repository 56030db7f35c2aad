"""The best partners of nodes, and scores of pairs, whatever the memory."""

import weakref
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from weft.errors import GraphError, InputError
from weft.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.stores import MemoryStore
from weft.tasks.partners import (
    Partners,
    chunk_sizes,
    joined,
    pair_chunks,
    pair_keys,
    partner_chunks,
)


class Dot:
    """Scores by a product, times one number per relation."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, src: Tensor, dst: Tensor, relation: Tensor | None = None) -> Tensor:
        self.sizes.append(len(src))
        return (src * dst).sum(-1) * (1 if relation is None else 1 - 2 * relation)

    def against(
        self, src: Tensor, all: Tensor, relation: Tensor | None = None, *, side: str = "dst"
    ) -> Tensor:
        self.sizes.append(len(src) * len(all))
        return src @ all.T * (1 if relation is None else 1 - 2 * relation[:, None])


def top_partners(h: Any, sources: Any, scorer: Dot, k: int, **options: Any) -> Partners:
    return joined(partner_chunks(h, sources, scorer, k, **options))


def pair_scores(h: Any, pairs: Pairs, scorer: Dot, *, chunk: int) -> Tensor:
    chunks = pair_chunks(h, pairs, lambda src, dst, some: scorer(src, dst, some.relation), chunk=chunk)
    return torch.cat([scores for _, scores in chunks])


def whole(
    h: Tensor, sources: Tensor, k: int, rows: slice, out: Tensor, kind: Tensor | None, itself: bool
) -> tuple[Tensor, Tensor]:
    """Return ids and scores by sorting the whole matrix, in plain Python."""
    scores = Dot().against(h[sources], h, kind)
    left_out = set(out.tolist())
    ids, values = [], []
    for row, source in enumerate(sources.tolist()):
        there = [
            (-float(scores[row, node]), node)
            for node in range(*rows.indices(len(h)))
            if source * len(h) + node not in left_out and (itself or node != source)
        ]
        best = sorted(there)[:k] + [(torch.inf, -1)] * max(0, k - len(there))
        ids.append([node for _, node in best])
        values.append([-value for value, _ in best])
    return torch.tensor(ids).reshape(-1, k), torch.tensor(values).reshape(-1, k)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    nodes=st.integers(1, 40),
    asked=st.integers(0, 12),
    k=st.integers(1, 9),
    memory=st.integers(1_500, 60_000),
    spread=st.sampled_from([0, 1, 50]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    itself=st.booleans(),
    typed=st.booleans(),
)
def test_partners_are_those_of_the_whole_matrix_for_every_size_of_a_piece(
    seed: int, nodes: int, asked: int, k: int, memory: int, spread: int, dtype: Any, itself: bool, typed: bool
) -> None:
    made = torch.Generator().manual_seed(seed)
    # Whole numbers: a product has the same bits in any order, and many scores are equal.
    h = torch.randint(-spread, spread + 1, (nodes, 3), generator=made).to(dtype)
    sources = torch.randint(nodes, (asked,), generator=made)
    low, high = torch.randint(nodes + 1, (2,), generator=made).sort().values.tolist()
    rows = slice(low, high) if typed else slice(None)
    src, dst = torch.randint(nodes, (2, 4 * nodes), generator=made)
    known = pair_keys(src, dst, nodes)
    kind = torch.randint(2, (asked,), generator=made) if typed else None
    ids, scores = whole(h, sources, k, rows, known, kind, itself)
    options: dict[str, Any] = {"candidates": rows, "relation": kind, "known": known, "itself": itself}
    for held in (h, MemoryStore(h)):
        found = top_partners(held, sources, Dot(), k, memory=memory, **options)
        assert torch.equal(found.sources, sources)
        assert torch.equal(found.ids, ids)
        assert torch.equal(found.scores, scores.to(found.scores.dtype))


def test_pieces_are_as_large_as_memory_allows_and_no_larger() -> None:
    h = torch.randn(900, 16)
    seen = {chunk_sizes(h, 900, 900, 5, memory) for memory in ("8KiB", "64KiB", "1MiB", "1GiB")}
    assert len(seen) == 4
    assert (900, 900) in seen
    expected = top_partners(h, torch.arange(30), Dot(), 5, memory="1GiB")
    known = pair_keys(*ring(900).edge_index, 900)
    for memory in (2**16, 2**19):
        with Peak() as peak:
            scorer = Dot()
            chunks = partner_chunks(h, torch.arange(30), scorer, 5, known=known, memory=memory)
            assert all(isinstance(chunk, Partners) for chunk in chunks)
        assert len(scorer.sizes) > 1
        assert peak.most <= memory
        again = top_partners(h, torch.arange(30), Dot(), 5, memory=memory)
        assert torch.equal(again.ids, expected.ids)
    flat, everything = torch.zeros(900, 4), torch.arange(20 * 900)
    for out in (None, everything):  # equal scores, all pairs known: the most that is ordered or left out
        with Peak() as peak:
            top_partners(flat, torch.arange(20), Dot(), 5, known=out, memory=2**18)
        assert 2**15 < peak.most <= 2**18
    with pytest.raises(InputError, match="memory: 100 bytes do not hold one pair of rows; give"):
        top_partners(h, [0], Dot(), 5, memory=100)


def test_partners_are_of_the_type_asked_for_and_known_ones_are_left_out() -> None:
    graph = Graph.from_types(
        {"author": {"x": torch.eye(3)}, "paper": {"x": torch.eye(4)}},
        {("author", "writes", "paper"): torch.tensor([[0, 0, 0, 1, 2], [0, 1, 3, 2, 2]])},
    )
    h = torch.ones(graph.num_nodes, 2)
    papers = graph.rows_of_type("paper")
    found = top_partners(
        h, [0, 1], Dot(), 3, candidates=papers, known=pair_keys(*graph.edge_index, graph.num_nodes)
    )
    assert found.ids.tolist() == [[5, -1, -1], [3, 4, 6]]
    assert found.scores.tolist() == [[2, -torch.inf, -torch.inf], [2, 2, 2]]


def test_scores_that_are_no_numbers_are_refused_by_name() -> None:
    h = torch.ones(60, 2)
    h[41] = torch.nan
    for memory in (2000, 2**20):
        with pytest.raises(GraphError, match="the score of nodes 7 and 41 is NaN") as raised:
            top_partners(h, [7, 8], Dot(), 2, memory=memory)
        assert "\n" not in str(raised.value)
    with pytest.raises(GraphError, match="the score of nodes 5 and 41 is NaN"):
        pair_scores(h, Pairs(torch.tensor([1, 5]), torch.tensor([2, 41])), Dot(), chunk=1)


@pytest.mark.parametrize(
    ("sources", "options", "line"),
    [
        ([60], {}, "sources: expected ids 0 … 59, got 60"),
        ([0], {"k": 0}, "k must be a whole number of at least 1, got 0"),
        ([0], {"relation": torch.zeros(2)}, "relation: 2 of them for 1 sources"),
        ([0], {"candidates": slice(0, 9, 2)}, "candidates: expected a range of ids without gaps"),
    ],
)
def test_what_cannot_be_is_refused(sources: list[int], options: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        top_partners(torch.ones(60, 2), sources, Dot(), **{"k": 1, **options})


def test_scores_of_pairs_are_those_of_the_matrix_a_few_at_a_time() -> None:
    made = torch.Generator().manual_seed(0)
    h = torch.randn(50, 4, generator=made)
    src, dst = torch.randint(50, (2, 23), generator=made)
    kind = torch.randint(2, (23,), generator=made)
    expected = (h @ h.T)[src, dst] * (1 - 2 * kind)
    for held in (h, MemoryStore(h)):
        scorer = Dot()
        scores = pair_scores(held, Pairs(src, dst, relation=kind), scorer, chunk=10)
        torch.testing.assert_close(scores, expected)
        assert scorer.sizes == [10, 10, 3]
    with pytest.raises(InputError, match="chunk must be"):
        pair_scores(h, Pairs(src, dst), Dot(), chunk=0)


def ring(nodes: int) -> Graph:
    here = torch.arange(nodes)
    return Graph.from_edges(torch.stack([here, (here + 1) % nodes]), num_nodes=nodes)


class Peak(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The most bytes that tensors made under it held at one time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {each.untyped_storage()._cdata for each in tensors(args)}
        out = func(*args, **(kwargs or {}))
        for made in tensors(out):
            storage = made.untyped_storage()
            if storage._cdata not in given | self.seen:
                self.seen.add(storage._cdata)
                self.now += storage.nbytes()
                weakref.finalize(storage, self.gone, storage._cdata, storage.nbytes())
        self.most = max(self.most, self.now)
        return out

    def gone(self, number: int, size: int) -> None:
        self.now -= size
        self.seen.discard(number)


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [each for one in value for each in tensors(one)] if isinstance(value, tuple | list) else []
