"""Which pairs of nodes are learned from, chosen by and tested on, and the graph that messages may flow in.

Edges are told apart by their two ends, never by their ids: both directions of a pair and its parallel copies,
of whatever relation, would give each other away.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from weft.errors import DataNote, GraphError, InputError
from weft.graph.build import EdgeType
from weft.graph.ends import drawn_order, edge_ends, first_of_each, mirrored, only, pair_ids
from weft.graph.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.graph.untimed import with_all_times
from weft.graph.views import GraphView

SPLITS = ("train", "val", "test")
SPLIT = "split"  # edge data: 0 train, 1 val, 2 test, -1 none
MASKS = tuple(f"{name}_mask" for name in SPLITS)
By = Literal["auto", "random", "time", "given"]
_NONE = -1  # of edges that are no targets
_DISJOINT = 1  # what a draw of pairs is for, beside the split itself


def split_pairs(
    graph: Graph,
    *,
    target: Any = None,
    by: By = "auto",
    key: str | None = None,
    val: float = 0.05,
    test: float = 0.1,
    disjoint: float = 0.0,
    label: str | None = None,
    seed: int = 0,
    undirected: bool | None = None,
) -> tuple[Graph, dict[str, Pairs]]:
    """Return the message graph and the pairs of "train", "val" and "test", those of them that have any.

    `target` names the relations whose edges are targets, as (source, relation, target) or "source relation
    target"; by default all of a graph with one type of node. `by` says which pair falls where:

    - "random": `val` and `test` are shares of pairs, drawn by (seed, pair), whatever the order of edges.
    - "time": `val` and `test` are the first times of validation and of test, in the edge data `key`
      ("time"). A pair without a label is a target once, at its first edge: one joined before is nothing new.
    - "given": by the edge data "split" (0 train, 1 val, 2 test, -1 none) or boolean train_mask, val_mask and
      test_mask. A pair may then be a target of several splits.
    - "auto": as given where it is, else at random.

    One message graph serves training, validation and test: no edge of it joins the ends of a validation or
    test pair, in either direction or in any relation, and by time it has only edges before `val` (those of a
    relation without times came when the edges did that it has the other way, or were always there). Of the
    training pairs a share of `disjoint` are targets and no messages, nor are their reverses and copies; the
    others are messages and no targets. With 0 all are targets, and messages too: whoever trains hides those
    of a step.

    `label` is the edge data to predict: it becomes `y`, and leaves the edge data of all edges. Edges with -1
    (whole numbers) or NaN (others) are no targets. Labelled pairs are one an edge, in its direction; others
    are one for each relation, source and target, and one for both directions with `undirected`, by default
    in relations that have every edge both ways, if the split is not given. Pairs come in canonical order,
    with "time" in `time` and other edge data in `data`.

    >>> graph = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 0]], edge_time=[1, 2, 3, 4])
    >>> messages, pairs = split_pairs(graph, by="time", val=3, test=4)
    >>> messages.edge_index.tolist(), {name: some.src.tolist() for name, some in pairs.items()}
    ([[0, 1], [1, 2]], {'train': [0, 1], 'val': [2], 'test': [3]})
    """
    if not 0 <= disjoint <= 1:
        raise InputError(f"disjoint is a share of the training pairs, 0 … 1, got {disjoint!r}")
    how = _way(graph, by)
    if how == "time":
        graph = with_all_times(graph, key or "time")
    edges = _Edges.of(graph, target, label)
    if how == "time":
        edges = _by_time(edges, _times(edges, key), val, test)
        shown = _before(graph, key or "time", val)
    else:
        edges = _at_random(edges, val, test, seed) if how == "random" else _as_given(edges)
        shown = torch.ones(graph.num_edges, dtype=torch.bool)
    if label is None:
        # A split that is given counts every edge of its own, also in relations that hold both ways.
        both = False if undirected is None and how == "given" else undirected
        edges = _once_each(edges, both, _times(edges, key) if how == "time" else None)
    # What joins the same ends the other way, or by another relation, would tell the answer as well.
    shown &= ~edges.touching(edges.part > 0)
    edges, shown = _disjoint(edges, shown, disjoint, seed)
    pairs = {name: edges.pairs(part, key) for part, name in enumerate(SPLITS)}
    if not any(map(len, pairs.values())):
        named = "" if label is None else f" with a known {label!r}"
        why = f"none{named} is in a split" if bool(edges.targets[edges.kind].any()) else "the graph has none"
        raise GraphError(f"no edge of {_listed(graph, edges.targets)} is a target: {why}")
    return forgetting(only(graph, shown), edges.label), {
        name: some for name, some in pairs.items() if len(some)
    }


@dataclass(frozen=True)
class _Edges:
    """All edges in canonical order, what each would be a target of, and what of them is to be predicted."""

    graph: Graph
    src: Tensor
    dst: Tensor
    kind: Tensor
    pair: Tensor
    """[E] a number for each two ends, 0 … num_pairs − 1."""
    ids: Tensor
    """[num_pairs] by which pairs are drawn."""
    targets: Tensor
    """[R] bool"""
    part: Tensor
    """[E] 0 … 2: of which split it is a target; -1: of none"""
    y: Tensor | None
    label: str | None

    @classmethod
    def of(cls, graph: Graph, target: Any, label: str | None) -> "_Edges":
        src, dst, kind = edge_ends(graph)
        targets = target_relations(graph, target)
        ids, pair = torch.unique(pair_ids(src, dst, graph.num_nodes), return_inverse=True)
        wanted, y = targets[kind], None
        if label is not None:
            y, known = _labels(graph, label, targets)
            wanted = wanted & known
        return cls(graph, src, dst, kind, pair, ids, targets, torch.where(wanted, 0, _NONE), y, label)

    @property
    def secrets(self) -> set[str]:
        """The edge data that no model may read."""
        return secrets(self.label)

    def touching(self, chosen: Tensor) -> Tensor:
        """Return all edges that join the ends of a chosen one, either way, [E] bool."""
        return self.among(self.pair[chosen])

    def drawn(self, chosen: Tensor, seed: int, use: int = 0) -> Tensor:
        """Return the distinct pairs of chosen edges, in the order of their draws."""
        pairs: Tensor = torch.unique(self.pair[chosen])
        return pairs[drawn_order(self.ids[pairs], seed, use)]

    def among(self, pairs: Tensor) -> Tensor:
        """Return whether each edge is of some pairs, [E] bool."""
        chosen = torch.zeros(len(self.ids), dtype=torch.bool)
        chosen[pairs] = True
        return chosen[self.pair]

    def pairs(self, part: int, key: str | None) -> Pairs:
        """Return the targets of one split."""
        at = (self.part == part).nonzero().flatten()
        when = key or "time"
        data = {name: value for name, value in self.graph.edge_data.items() if name not in self.secrets}
        return Pairs(
            self.src[at],
            self.dst[at],
            relation=None if self.graph.edge_type is None else self.kind[at],
            y=None if self.y is None else self.y[at],
            time=data[when][at] if when in data else None,
            data={name: value[at] for name, value in data.items() if name != when},
        )


# What is asked for


def target_relations(graph: GraphView, target: Any) -> Tensor:
    """Return which relations are targets, [R] bool."""
    count = len(graph.edge_types)
    if target is None and (count == 1 or len(graph.node_types) == 1):
        return torch.ones(count, dtype=torch.bool)
    if target is None:
        raise GraphError(f"target: name a relation to predict; the graph has: {_listed(graph)}")
    one = isinstance(target, str) or (isinstance(target, tuple) and tuple(target) in graph.edge_types)
    chosen = torch.zeros(count, dtype=torch.bool)
    for given in [target] if one else list(target):
        chosen[_relation(graph, given)] = True
    if not bool(chosen.any()):
        raise GraphError(f"target: name a relation to predict; the graph has: {_listed(graph)}")
    return chosen


def _relation(graph: GraphView, given: Any) -> int:
    words = given if isinstance(given, str) else " ".join(map(str, given))
    names = [" ".join(kind) for kind in graph.edge_types]
    if words not in names:
        raise GraphError(f"target: no relation {words!r}; the graph has: {_listed(graph)}")
    return names.index(words)


def _listed(graph: GraphView, chosen: Tensor | None = None, most: int = 20) -> str:
    kinds: Sequence[EdgeType] = graph.edge_types
    if chosen is not None:
        kinds = [kind for kind, yes in zip(kinds, chosen.tolist()) if yes]
    names = [repr(" ".join(kind)) for kind in kinds]
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _held(graph: Graph, name: str, targets: Tensor, purpose: str) -> Tensor:
    """Return edge data that the target relations must have."""
    if name not in graph.edge_data:
        have = ", ".join(graph.edge_data) or "none"
        raise GraphError(f"{purpose}: the graph has no edge data {name!r}; it has: {have}")
    for relation, width in enumerate(graph.edge_columns.get(name, [])):
        if width is None and bool(targets[relation]):
            raise GraphError(f"{purpose}: {' '.join(graph.edge_types[relation])!r} has no edge data {name!r}")
    return graph.edge_data[name]


def _labels(graph: Graph, label: str, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return what is to be predicted of each edge, and of which edges it is known."""
    y = _held(graph, label, targets, "label")
    if y.is_floating_point():
        return y, ~torch.isnan(y).flatten(1).any(1) if y.dim() > 1 else ~torch.isnan(y)
    if len(y) and int(y.min()) < -1:
        raise GraphError(
            f"label: edge data {label!r} holds {int(y.min())}: classes are 0, 1, …, -1 for none; "
            "numbers to predict are stored as floats"
        )
    y = y.long()
    return y, (y >= 0).flatten(1).all(1) if y.dim() > 1 else y >= 0


def _way(graph: Graph, by: str) -> str:
    given = any(name in graph.edge_data for name in (SPLIT, *MASKS))
    if by not in ("auto", "random", "time", "given"):
        raise InputError(f"by must be 'auto', 'random', 'time' or 'given', got {by!r}")
    if by == "given" and not given:
        raise GraphError(
            f"by='given' needs edge data {SPLIT!r} or {', '.join(MASKS)}; the graph has none of them"
        )
    return by if by != "auto" else "given" if given else "random"


# Which edge falls where


def _at_random(edges: _Edges, val: float, test: float, seed: int) -> _Edges:
    if val < 0 or test < 0 or val + test >= 1:
        raise InputError(f"val and test are shares that leave some pairs, got {val!r} and {test!r}")
    wanted = edges.part >= 0
    # Pairs are drawn, not edges: a direction or a copy must not be trained on where the other is asked.
    order = edges.drawn(wanted, seed)
    first, second = round(val * len(order)), round((val + test) * len(order))
    part = torch.zeros(len(edges.ids), dtype=edges.part.dtype)
    part[order[:first]], part[order[first:second]] = 1, 2
    return replace(edges, part=torch.where(wanted, part[edges.pair], _NONE))


def _times(edges: _Edges, key: str | None) -> Tensor:
    time = _held(edges.graph, key or "time", edges.targets, "by='time'")
    if time.dim() != 1:
        raise GraphError(f"by='time': {key or 'time'!r} must be one number per edge, got {list(time.shape)}")
    return time


def _by_time(edges: _Edges, time: Tensor, val: float, test: float) -> _Edges:
    wanted = edges.part >= 0
    if val > test:
        raise InputError(f"by='time': val and test are their first times, got {val!r} after {test!r}")
    if not bool((wanted & (time < val)).any()):
        some = time[wanted]
        message = f"times are {some.min().item()} … {some.max().item()}" if len(some) else "there is none"
        raise InputError(f"by='time': no edge comes before val={val!r}, its first time; {message}")
    part = (time >= val).long() + (time >= test).long()
    return replace(edges, part=torch.where(wanted, part, _NONE))


def _before(graph: Graph, key: str, val: float) -> Tensor:
    """Return the edges before a time, and those of relations that have no times, [E] bool."""
    before = graph.edge_data[key] < val
    columns = graph.edge_columns.get(key, [])
    timeless = torch.tensor([width is None for width in columns] or [False] * graph.num_relations)
    return before if graph.edge_type is None else before | timeless[graph.edge_type.long()]


def _as_given(edges: _Edges) -> _Edges:
    data = edges.graph.edge_data
    if SPLIT in data:
        part = _held(edges.graph, SPLIT, edges.targets, "by='given'").long()
        if len(part) and not -1 <= int(part.min()) <= int(part.max()) <= 2:
            worst = int(part.min()) if int(part.min()) < -1 else int(part.max())
            raise GraphError(f"edge data {SPLIT!r} holds {worst}: 0 is train, 1 val, 2 test, -1 none")
    else:
        part = _of_masks([data.get(name) for name in MASKS], len(edges.src))
    return replace(edges, part=torch.where(edges.part >= 0, part, _NONE))


def _of_masks(masks: list[Tensor | None], count: int) -> Tensor:
    """Return the split of each edge; without train_mask those of no other mask are trained on."""
    part = torch.full((count,), _NONE if masks[0] is not None else 0)
    seen = torch.zeros(count, dtype=torch.bool)
    for number, mask in enumerate(masks):
        if mask is None:
            continue
        if mask.dtype != torch.bool or mask.dim() != 1:
            raise GraphError(f"edge data {MASKS[number]!r} must be one boolean an edge, got {mask.dtype}")
        if bool((seen & mask).any()):
            raise GraphError(
                f"edge data {MASKS[number]!r}: {int((seen & mask).sum()):,} edges are in two masks"
            )
        seen |= mask
        part[mask] = number
    return part


# Which of them are targets, and which messages


def _once_each(edges: _Edges, undirected: bool | None, time: Tensor | None) -> _Edges:
    """Return the edges with one target for each pair of a relation and split; by time its first edge."""
    graph = edges.graph
    both = (
        mirrored(graph, within=True) if undirected is None else torch.full((graph.num_relations,), undirected)
    )
    part, at = edges.part, (edges.part >= 0).nonzero().flatten()
    if time is not None:
        first = torch.full((len(edges.ids),), 2).scatter_reduce_(0, edges.pair[at], part[at], "amin")
        again = (part >= 0) & (part != first[edges.pair])
        if bool(again.any()):
            message = (
                f"{int(again.sum()):,} later edges join pairs that an earlier split has: they are no targets"
            )
            warnings.warn(f"by='time': {message}", DataNote, stacklevel=3)
        part = torch.where(again, _NONE, part)
        at = (part >= 0).nonzero().flatten()
    back = edges.src[at] > edges.dst[at]
    turned = (back & ~both[edges.kind[at]]).long()  # in directed relations the two directions are two pairs
    group = ((edges.kind[at] * len(edges.ids) + edges.pair[at]) * 3 + part[at]) * 2 + turned
    ranks = [back] if time is None else [time[at], back]
    one = at[first_of_each(group, *ranks)]
    alone = torch.full_like(part, _NONE)
    alone[one] = part[one]
    return replace(edges, part=alone)


def _disjoint(edges: _Edges, shown: Tensor, share: float, seed: int) -> tuple[_Edges, Tensor]:
    """Return the edges and messages with a share of the training pairs as targets alone; all if it is 0."""
    if not share:
        return edges, shown
    # A draw of its own, last: validation and test are the same pairs whatever the share.
    order = edges.drawn(edges.part == 0, seed, _DISJOINT)
    hidden = edges.among(order[: round(share * len(order))])
    return replace(edges, part=torch.where((edges.part == 0) & ~hidden, _NONE, edges.part)), shown & ~hidden


def secrets(label: str | None) -> set[str]:
    """Return the names of edge data that no model may read."""
    return {SPLIT, *MASKS} | ({label} if label is not None else set())


def forgetting(graph: Graph, label: str | None) -> Graph:
    """Return the graph without the edge data that tell splits, or what is to be predicted."""
    parts, names = graph.parts(), secrets(label)
    data = {name: value for name, value in parts.edge_data.items() if name not in names}
    columns = {name: value for name, value in parts.edge_columns.items() if name not in names}
    return Graph(replace(parts, edge_data=data, edge_columns=columns))
