"""Scores of given pairs, and the best partners of nodes among all candidates, in as much memory as is given.

All pairs of n nodes are n² scores. They are computed a rectangle at a time, some sources by some candidates,
of which only the k best of each source are kept. What is kept does not depend on the rectangles: candidates
come in the order of their ids, and of equal scores the lower id is kept.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from weft.errors import GraphError, InputError
from weft.graph.ends import pair_ids
from weft.graph.node_pairs import Pairs
from weft.graph.source import RowSource
from weft.samplers.core.reference import ranges
from weft.sizes import parse_bytes, shown
from weft.tasks.scores import End

Rows = Tensor | RowSource
_PLACES = 32  # bytes a score, beside itself, to leave out known pairs or to order equal scores


class PairScorer(Protocol):
    """What tells how well two nodes go together, by their rows."""

    def against(
        self, src: Tensor, all: Tensor, relation: Tensor | None = None, *, side: End = "dst"
    ) -> Tensor:
        """Return the scores of each source [n, d] with each of all [m, d]: a new [n, m].

        With `side = "src"` all are sources, and the n rows targets.
        """


@dataclass(frozen=True, eq=False)
class Partners:
    """One row per source, the best partner first."""

    sources: Tensor
    """[n] int64 global ids."""
    ids: Tensor
    """[n, k] int64 global ids; -1 where a source has fewer than k candidates."""
    scores: Tensor
    """[n, k]; -inf where there is no partner."""


def joined(chunks: Iterable[Partners]) -> Partners:
    """Return the partners of all sources in one piece.

    >>> from types import SimpleNamespace
    >>> dot = SimpleNamespace(against=lambda src, all, relation, side: src @ all.T)
    >>> h = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]])
    >>> joined(partner_chunks(h, [0, 2], dot, 3)).ids.tolist()
    [[1, 2, -1], [1, 0, -1]]
    """
    pieces = list(chunks)
    columns = ([getattr(one, name) for one in pieces] for name in ("sources", "ids", "scores"))
    return Partners(*map(torch.cat, columns))


@torch.no_grad()
def partner_chunks(
    h: Rows,
    sources: Any,
    scorer: PairScorer,
    k: int,
    *,
    candidates: slice | None = None,
    relation: Tensor | None = None,
    known: Tensor | None = None,
    itself: bool = False,
    side: End = "dst",
    memory: int | str = "256MiB",
) -> Iterator[Partners]:
    """Give the k best partners of some sources after the other, in the order of `sources` [n].

    `h` has one row per node by global id: a matrix, or a store that is read piece by piece. `candidates` is a
    range of ids, such as `graph.rows_of_type("paper")`, by default all; `relation` [n] is handed to the
    scorer. Pairs whose keys are in `known`, rising as `pair_keys` gives them, are left out, and so is each
    source by itself unless `itself`. With `side = "src"` the best sources of targets are looked for:
    `sources` are the targets, and keys are those of (target, source). `memory` bounds what is held at a
    time, and says how many sources and candidates that are. A pair of score -inf is no candidate; a score
    that is NaN is refused.
    """
    sources = _checked(h, sources, k, relation)
    start, stop, step = (candidates or slice(None)).indices(h.shape[0])
    if step != 1:
        raise InputError(f"candidates: expected a range of ids without gaps, got a step of {step}")
    count, width = chunk_sizes(h, sources.numel(), stop - start, k, memory)
    for first in range(0, max(1, sources.numel()), count):
        some = sources[first : first + count]
        kind = None if relation is None else relation[first : first + count].to(h.device)
        rows, best = _rows(h, some), _none(some, k, h.device)
        for begin in range(start, stop, width):
            these = torch.arange(begin, min(begin + width, stop))
            scores = scorer.against(rows, h[begin : begin + len(these)], kind, side=side)
            scores = _numbers(scores, some[:, None], these[None])
            _leave_out(scores, some, begin, known, h.shape[0], itself)
            best = _merged(best, scores, begin)
        yield replace(best, ids=best.ids.masked_fill(best.scores == -torch.inf, -1))


@torch.no_grad()
def pair_chunks(
    h: Rows, pairs: Pairs, said: Callable[[Tensor, Tensor, Pairs], Tensor], *, chunk: int = 65536
) -> Iterator[tuple[Pairs, Tensor]]:
    """Give some pairs after the other, once at least, and what `said` gives of the rows of both ends."""
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        raise InputError(f"chunk must be a whole number of at least 1, got {chunk!r}")
    for first in range(0, max(1, len(pairs)), chunk):
        some = pairs.take(torch.arange(first, min(first + chunk, len(pairs))))
        outputs = said(_rows(h, some.src), _rows(h, some.dst), some.to(h.device))
        across = (-1, *[1] * (outputs.dim() - 1))
        yield some, _numbers(outputs, some.src.reshape(across), some.dst.reshape(across)).cpu()


def pair_keys(src: Tensor, dst: Tensor, num_nodes: int) -> Tensor:
    """Return the keys of pairs, rising, each once: what `known` takes."""
    keys: Tensor = torch.unique(pair_ids(src.long(), dst.long(), num_nodes, undirected=False))
    return keys


def chunk_sizes(h: Rows, sources: int, candidates: int, k: int, memory: int | str) -> tuple[int, int]:
    """Return how many sources and how many candidates are scored at a time within so many bytes."""
    room, row = parse_bytes(memory), h.shape[1:].numel() * h.dtype.itemsize
    count, width = max(1, sources), max(1, candidates)

    def needed() -> int:
        best = 8 * min(k, width) * 12  # of a source: both lists, joined, ordered and taken
        return count * (2 * row + best) + width * 2 * row + count * width * (h.dtype.itemsize + _PLACES)

    while needed() > room:
        if count == width == 1:
            raise InputError(f"memory: {shown(room)} do not hold one pair of rows; give {shown(needed())}")
        count, width = (count, -(-width // 2)) if width > count else (-(-count // 2), width)
    return count, width


def _checked(h: Rows, sources: Any, k: int, relation: Tensor | None) -> Tensor:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, got {k!r}")
    if getattr(h, "collective", False):
        raise InputError("h: a store that all ranks read together; give one that each reads by itself")
    ids = torch.as_tensor(sources).to("cpu", torch.int64)
    wrong = ids[(ids < 0) | (ids >= h.shape[0])]
    if wrong.numel():
        raise GraphError(f"sources: expected ids 0 … {h.shape[0] - 1:,}, got {int(wrong[0]):,}")
    if relation is not None and len(relation) != len(ids):
        raise GraphError(f"relation: {len(relation):,} of them for {len(ids):,} sources")
    return ids


def _rows(h: Rows, ids: Tensor) -> Tensor:
    return h.gather(ids) if isinstance(h, RowSource) else h[ids.to(h.device)]


def _numbers(scores: Tensor, src: Tensor, dst: Tensor) -> Tensor:
    """Return scores in 32 bits or more; refuse one that is NaN by the ids of its pair."""
    wrong = scores.isnan()
    if bool(wrong.any()):
        at = tuple(wrong.nonzero()[0].cpu())
        u, v = (int(torch.broadcast_to(ends, scores.shape)[at]) for ends in (src, dst))
        raise GraphError(
            f"the score of nodes {u} and {v} is NaN, which has no rank: look for NaN in the rows of both "
            "and in the weights of the scorer"
        )
    return scores if scores.dtype.itemsize >= 4 else scores.float()


def _leave_out(
    scores: Tensor, sources: Tensor, begin: int, known: Tensor | None, num_nodes: int, itself: bool
) -> None:
    """Give -inf to known pairs, and to a source by itself; columns are the ids from `begin` on."""
    width = scores.shape[1]
    if known is not None:
        first = sources * num_nodes + begin
        low, high = torch.searchsorted(known, first), torch.searchsorted(known, first + width)
        rows = torch.repeat_interleave(high - low)
        known_nodes = known[torch.from_numpy(ranges(low.numpy(), (high - low).numpy()))]
        scores[rows.to(scores.device), (known_nodes - first[rows]).to(scores.device)] = -torch.inf
    if not itself:
        rows = ((sources >= begin) & (sources < begin + width)).nonzero().flatten()
        scores[rows.to(scores.device), (sources[rows] - begin).to(scores.device)] = -torch.inf


def _none(sources: Tensor, k: int, device: torch.device) -> Partners:
    shape = len(sources), k
    scores = torch.full(shape, -torch.inf, device=device)
    return Partners(sources, torch.full(shape, -1, device=device), scores)


def _merged(best: Partners, scores: Tensor, begin: int) -> Partners:
    """Return the best of those so far, whose ids are lower, and of the candidates from `begin` on."""
    k = best.ids.shape[1]
    places = _best(scores, min(k, scores.shape[1]))
    joined = torch.cat([best.scores.to(scores.dtype), scores.gather(1, places)], 1)
    ids = torch.cat([best.ids, places + begin], 1)
    order = joined.argsort(dim=1, descending=True, stable=True)[:, :k]
    return replace(best, ids=ids.gather(1, order), scores=joined.gather(1, order))


def _best(scores: Tensor, k: int) -> Tensor:
    """Return the places of the k highest of each row, the highest first, of equal ones the first."""
    values, places = scores.topk(k, dim=1)
    least = values[:, -1:]
    # Which of equal scores topk takes is its own affair: where it had a choice, the row is sorted.
    choice = (scores == least).sum(1) > (values == least).sum(1)
    if bool(choice.any()):
        order = scores[choice].argsort(dim=1, descending=True, stable=True)
        places[choice] = order[:, :k]
    places = places.sort(dim=1).values
    order = scores.gather(1, places).argsort(dim=1, descending=True, stable=True)
    return places.gather(1, order)
