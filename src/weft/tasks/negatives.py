"""Negatives of pairs: nodes that an end might have been and is not.

Draws are keyed by (seed, epoch, key of the pair), those that all pairs of a step share by (seed, epoch,
step): whoever holds a pair draws the same, from all nodes of the type, never from those of a worker alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from weft.draw import Stream, fold, row_keys
from weft.errors import GraphError, InputError
from weft.graph.ends import edge_ends
from weft.graph.graph import Graph
from weft.graph.known import Known
from weft.graph.node_pairs import Pairs
from weft.samplers.pool import Bools, Ints, Pool
from weft.tasks.split import target_relations

Name = Literal["uniform", "degree", "joint", "inbatch", "hard", "all"]
End = Literal["dst", "src"]
ALPHA = 0.75
_OWN = ("uniform", "degree")  # each pair has its own
_FIXED = 8  # beside 0 … 7, what draws of epochs are for: those that no epoch changes


@dataclass(frozen=True)
class Drawn:
    """Negatives of pairs, one row per pair; with both sides n that replace targets, then n for sources."""

    nodes: Tensor
    """[rows, k] global ids, or [m] where all rows have the same"""
    masked: Tensor
    """bool [rows, k] or [rows, m]: what is no negative of a row: its own end, another type, a known link"""
    log_q: Tensor | None = None
    """[m] in-batch: the logarithm of how often each is drawn, to be taken from its score"""

    @property
    def shared(self) -> bool:
        """Whether all rows have the same nodes, so that one product of matrices scores them."""
        return self.nodes.dim() == 1


class Nodes:
    """What may be drawn: nodes by type, how often each is an end, and when it came."""

    def __init__(
        self,
        names: list[str],
        offsets: list[int],
        *,
        kinds: dict[End, list[int]],
        degrees: Mapping[End, Tensor],
        time: Tensor | None = None,
    ) -> None:
        """`kinds` are the types that ends of pairs have, `degrees` [N] how often a node is one."""
        self.names, self.offsets = names, np.asarray(offsets, np.int64)
        self.kinds, self.degrees, self.time = kinds, degrees, time
        self._pools: dict[Any, Pool] = {}

    @classmethod
    def of(cls, graph: Graph, target: Any = None, pairs: Pairs | None = None) -> "Nodes":
        """Return the nodes of a graph for pairs of the `target` relations, as `split_pairs` takes them.

        Degrees are those of `pairs`, the training pairs, or of the edges of the target relations. Times are
        the node data "time" of the types that have it; nodes of others have always been there.
        """
        chosen = target_relations(graph, target)
        kinds = [kind for kind, yes in zip(graph.edge_types, chosen.tolist()) if yes]
        src, dst, relation = edge_ends(graph)
        if pairs is not None:
            src, dst = pairs.src, pairs.dst
        else:
            src, dst = src[chosen[relation]], dst[chosen[relation]]
        return cls.between(graph, kinds, ends_of(src, dst, graph.num_nodes), time=node_times(graph))

    @classmethod
    def between(
        cls,
        graph: Any,
        kinds: Sequence[tuple[str, str, str]],
        degrees: Mapping[End, Tensor],
        *,
        time: Tensor | None = None,
    ) -> "Nodes":
        """Return the nodes at the ends of some relations, of a graph or of what a worker holds of it."""
        number = graph.node_types.index
        places: dict[End, int] = {"dst": 2, "src": 0}
        return cls(
            graph.node_types,
            graph.node_offsets,
            kinds={side: sorted({number(kind[end]) for kind in kinds}) for side, end in places.items()},
            degrees=degrees,
            time=time,
        )

    def kind(self, nodes: Tensor) -> Ints:
        """Return the number of the type of each node."""
        kinds: Ints = np.searchsorted(self.offsets, nodes.numpy(), side="right") - 1
        return kinds

    def pool(self, side: End, alpha: float | None, temporal: bool) -> Pool:
        """Return the nodes to draw from: by degree^alpha, by time; kept."""
        key = (side if alpha is not None else None, alpha, temporal)
        if key not in self._pools:
            weight = None if alpha is None else self.degrees[side].double().pow(alpha).numpy()
            if weight is not None and alpha == 0:
                weight = None
            time = self.time.numpy() if temporal and self.time is not None else None
            self._pools[key] = Pool(self.offsets, weight=weight, time=time)
        return self._pools[key]

    def log_q(self, nodes: Tensor, side: End) -> Tensor:
        """Return the logarithm of how often nodes are ends, among those of their type."""
        degrees = self.degrees[side].double()
        whole = torch.zeros(len(self.names), dtype=torch.float64)
        for kind, (low, high) in enumerate(zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist())):
            whole[kind] = degrees[low:high].sum()
        # A node that is an end of held-out pairs alone has degree 0, and the logarithm of that has no bound.
        share = degrees[nodes].clamp(min=1) / whole[torch.from_numpy(self.kind(nodes))].clamp(min=1)
        return share.log()


@dataclass(frozen=True)
class Negatives:
    """How negatives are drawn.

    - "uniform": `count` nodes a pair, each of the type with the same chance.
    - "degree": `count` a pair, by (how often a node is such an end)^`alpha` (0.75); never one that is none.
    - "joint": one set of `count` for all pairs of a step and type of end, uniform or by degree^`alpha`.
    - "inbatch": the ends of all other pairs of the step, with a correction for how often they come.
    - "hard": of one set of `pool`, as joint, the `count` that score best: chosen by whoever scores.
    - "all": every node of the type, to evaluate by.

    `side` says which end is replaced, by default "dst". A pair's own end is never a negative of it; with
    `exclude = "known"` neither is one that would make a known link of the same relation, nor the other end
    itself. With `temporal` only nodes that were there at the pair's time are. What is drawn is drawn again
    until it is a negative; a pair that has too few, say a source that is joined to all, has the rest masked.

    `filtered`, of "all", ranks pairs as those of knowledge graphs are: both ends are asked for, every node of
    the type is a candidate, the other end too, and what else is true in any split is left out.
    """

    name: Name = "uniform"
    count: int | None = None
    side: Literal["dst", "src", "both"] | None = None
    alpha: float | None = None
    exclude: Literal["known"] | None = None
    pool: int | None = None
    temporal: bool = False
    filtered: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, words in (
            ("name", (*_OWN, "joint", "inbatch", "hard", "all")),
            ("side", (None, "dst", "src", "both")),
            ("exclude", (None, "known")),
        ):
            if getattr(self, name) not in words:
                allowed = ", ".join(map(repr, words))
                raise InputError(f"negatives: {name} must be one of {allowed}, got {getattr(self, name)!r}")
        if self.alpha is not None and self.name not in ("degree", "joint"):
            raise InputError(f"negatives: alpha goes with name='degree' or 'joint', not {self.name!r}")
        if self.filtered and (self.name != "all" or self.exclude or self.temporal):
            raise InputError("negatives: filtered goes with name='all', and without exclude and temporal")
        if self.alpha is not None and self.name == "joint" and self.side == "both":
            raise InputError("negatives: one set for both sides has no degree of one; side='dst' or 'src'")
        if self.count is not None and self.name in ("inbatch", "all"):
            raise InputError(f"negatives: {self.name!r} has as many as there are; leave count out")
        if (self.pool is not None) is not (self.name == "hard"):
            raise InputError("negatives: 'hard', and it alone, needs pool: how many nodes a step scores")
        for name in ("count", "pool"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"negatives: {name} must be a whole number of at least 1, got {value!r}")
        if self.pool is not None and self.pool < (self.count or 1):
            raise InputError(f"negatives: a pool of {self.pool} has no {self.count} best")

    @property
    def sides(self) -> tuple[End, ...]:
        """The ends that are replaced, in the order of rows."""
        side = self.side or ("both" if self.filtered else "dst")
        return ("dst", "src") if side == "both" else (side,)

    def draw(
        self,
        pairs: Pairs,
        epoch: int | None,
        *,
        among: Nodes,
        known: Known | None = None,
        step: int = 0,
        batch: Pairs | None = None,
    ) -> Drawn:
        """Return negatives of pairs.

        `epoch` None gives those that no epoch changes: the same whenever a model is evaluated. `known` are
        the links to exclude: in training those of the training graph, in evaluation of all splits. `step`
        tells shared sets apart; `batch` are all pairs of the step, whoever holds them, by default these.
        """
        self._check(pairs, among, known)
        if self.name in _OWN:
            drawn = [self._own(pairs, epoch, side, among, known) for side in self.sides]
            return Drawn(*(torch.cat(part) for part in zip(*drawn)))
        columns, side_of, log_q = self._columns(epoch, step, pairs if batch is None else batch, among)
        masked = [
            self._masked(pairs, side, columns, among, known)
            | (False if side_of is None else side_of != self.sides.index(side))
            for side in self.sides
        ]
        return Drawn(columns, torch.cat(masked), log_q)

    def _check(self, pairs: Pairs, among: Nodes, known: Known | None) -> None:
        if self.exclude and known is None:
            raise InputError("negatives: exclude='known' needs the known links")
        if self.temporal and (among.time is None or pairs.time is None):
            lack = "nodes" if among.time is None else "pairs"
            raise GraphError(f"negatives: temporal, and the {lack} have no 'time'")
        sizes = np.diff(among.offsets)
        for side in self.sides:
            for kind in among.kinds[side]:
                if sizes[kind] == 1:
                    raise GraphError(
                        f"negatives: there is one {among.names[kind]!r}, so a pair has no other {side}; "
                        f"side='{'src' if side == 'dst' else 'dst'}'"
                    )

    # Of each pair its own

    def _own(
        self, pairs: Pairs, epoch: int | None, side: End, among: Nodes, known: Known | None
    ) -> tuple[Tensor, Tensor]:
        """Return nodes [n, count] and which of them are none."""
        own, count = getattr(pairs, side), self.count or 1
        alpha = None if self.name == "uniform" else ALPHA if self.alpha is None else self.alpha
        pool = among.pool(side, alpha, self.temporal)
        times = pairs.time.numpy() if self.temporal and pairs.time is not None else None
        low, high = pool.ranges(among.kind(own), times)
        # A pair has one key: without the layer both of its sides would be drawn alike.
        rows = row_keys(self._key(epoch, layer=0 if side == "dst" else 1), pairs.keys.numpy())

        def taken(row: Ints, nodes: Ints) -> Bools:
            some, candidates = pairs.take(torch.from_numpy(row)), torch.from_numpy(nodes)
            hit: Bools = self._hits(some, side, candidates, known).numpy()
            return hit

        nodes, free = pool.draw(rows, count, low, high, taken)
        masked = torch.from_numpy(~free)
        # What is masked is scored all the same: the own end is there already, so no row is brought for it.
        return torch.where(masked, own[:, None], torch.from_numpy(nodes)), masked

    def _hits(self, pairs: Pairs, side: End, nodes: Tensor, known: Known | None) -> Tensor:
        """Return whether nodes are no negatives of pairs; all are broadcast, pairs along the first axis."""
        shape = [-1] + [1] * (nodes.dim() - 1)
        src, dst = pairs.src.reshape(shape), pairs.dst.reshape(shape)
        hit = nodes == (dst if side == "dst" else src)
        if self.exclude and known is not None:
            kind = None if pairs.relation is None else pairs.relation.reshape(shape)
            ends = (src, nodes) if side == "dst" else (nodes, dst)
            hit = hit | known.hits(*ends, kind) | (ends[0] == ends[1])
        return hit

    def _key(self, epoch: int | None, step: int = 0, layer: int = 0) -> int:
        fixed = _FIXED if epoch is None else 0
        return fold(self.seed, Stream.NEGATIVE, epoch or 0, step, layer + fixed)

    # Shared by all

    def _columns(
        self, epoch: int | None, step: int, batch: Pairs, among: Nodes
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the nodes that all pairs share, in-batch the side of each, and its correction."""
        if self.name == "inbatch":
            ends = [getattr(batch, side) for side in self.sides]
            side_of = torch.arange(len(ends)).repeat_interleave(len(batch))
            log_q = torch.cat([among.log_q(end, side) for end, side in zip(ends, self.sides)])
            return torch.cat(ends), side_of, log_q
        kinds = sorted({kind for side in self.sides for kind in among.kinds[side]})
        if self.name == "all":
            ranges = [torch.arange(among.offsets[kind], among.offsets[kind + 1]) for kind in kinds]
            return torch.cat(ranges), None, None
        count = self.pool or self.count or 1
        pool = among.pool(self.sides[0], self.alpha, False)
        low, high = pool.ranges(np.asarray(kinds))
        # Beside 0 and 1, the layers of draws that pairs have of their own.
        rows = row_keys(self._key(epoch, step, 2), np.asarray(kinds))
        # Nothing is drawn again: what is no negative of one pair is one of another, so it is masked by pair.
        nodes, _ = pool.draw(rows, count, low, high, lambda row, _: np.zeros(len(row), bool))
        return torch.from_numpy(nodes.reshape(-1)), None, None

    def _masked(self, pairs: Pairs, side: End, columns: Tensor, among: Nodes, known: Known | None) -> Tensor:
        """Return which columns are no negatives of which pairs, [n, m]."""
        kinds = torch.from_numpy(among.kind(getattr(pairs, side)))
        masked = kinds[:, None] != torch.from_numpy(among.kind(columns))
        if self.temporal and among.time is not None and pairs.time is not None:
            masked |= among.time[columns] > pairs.time[:, None]
        own, other = (pairs.dst, pairs.src) if side == "dst" else (pairs.src, pairs.dst)
        masked |= columns == own[:, None]
        if self.exclude and known is not None:
            masked |= columns == other[:, None]
            masked |= known.crossed(other, columns, pairs.relation, side=side)
        return masked


def ends_of(src: Tensor, dst: Tensor, num_nodes: int) -> dict[End, Tensor]:
    """Return how often each node is a source and a target, [N] each."""
    return {
        "dst": torch.bincount(dst, minlength=num_nodes),
        "src": torch.bincount(src, minlength=num_nodes),
    }


def node_times(graph: Graph) -> Tensor | None:
    """Return when each node came, [N]; the earliest there can be for types that do not tell."""
    times = {kind: data.get("time") for kind, data in graph.node_data.items()}
    known = {kind: value for kind, value in times.items() if isinstance(value, Tensor)}
    if not known:
        return None
    if any(value.is_floating_point() for value in known.values()):
        time = torch.full((graph.num_nodes,), -torch.inf, dtype=torch.float64)
    else:
        time = torch.full((graph.num_nodes,), -(2**63), dtype=torch.int64)
    for kind, value in known.items():
        time[graph.rows_of_type(kind)] = value.to(time.dtype)
    return time
