"""What a model says of pairs of nodes: scores of given ones, and the best partners of each node.

Rows of nodes are those of `infer`, over all edges of the graph that is given; pairs are scored by the head
that training put on the model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft.errors import InputError
from weft.graph.ends import edge_ends
from weft.graph.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.graph.source import RowSource
from weft.registry import suggest
from weft.samplers.base import as_seeds
from weft.tasks.base import head_of, of_nodes
from weft.tasks.partners import Partners, joined, pair_chunks, pair_keys, partner_chunks
from weft.tasks.prediction_tables import relation_names
from weft.tasks.scores import End, Scorer
from weft.tasks.scores.cosine import Cosine
from weft.train.inference.infer import infer
from weft.train.inference.predictions import ByNode
from weft.train.user.followed import own_of

_LISTED = 20
ROOM = "256MiB"
"""What scores may take at a time where nothing is said."""


def score_pairs(
    model: nn.Module, graph: Graph, source: Any, target: Any, *, relation: Any = None, **options: Any
) -> Tensor:
    """Return what a model says of pairs of nodes (global ids): the score of each, [n], or [n, columns].

    `relation` names that of all pairs, where the graph has several: its name, or "source relation target".
    All edges of the graph are messages; `options` are those of `weft.infer`, which computes the nodes' rows.
    """
    head: Any = _head(model)
    number = choose_relation(graph, relation, None, "relation")
    kinds = graph.edge_types[number]
    src = _of_type(graph, as_seeds(graph, source), kinds[0], "source")
    dst = _of_type(graph, as_seeds(graph, target), kinds[2], "target")
    if len(src) != len(dst):
        raise InputError(f"source and target: {len(src):,} and {len(dst):,} nodes; give one per pair")
    kind = None if graph.edge_type is None else torch.full_like(src, number)
    nodes = torch.unique(torch.cat([src, dst]))
    inferred = infer(model, graph, nodes=nodes, **options)
    rows = ByNode(inferred.rows, nodes, graph.num_nodes)

    def said(src: Tensor, dst: Tensor, some: Pairs) -> Tensor:
        outputs: Tensor = head(src, dst, some.relation)
        return outputs

    with _on_host(head):
        return torch.cat([scores for _, scores in pair_chunks(rows, Pairs(src, dst, relation=kind), said)])


def partners(
    model: nn.Module,
    graph: Graph,
    k: int,
    *,
    of: Any = None,
    relation: Any = None,
    side: End = "dst",
    include_known: bool = False,
    room: int | str = ROOM,
    **options: Any,
) -> Partners:
    """Return the k best partners of each node of `of` (global ids; by default of all), the best first.

    Exact: every candidate is scored, some at a time within `room` bytes. Edges of the graph are left out
    unless `include_known`. `relation` is as in `score_pairs`, and so are `options`. Partners are targets of
    sources, or with `side = "src"` sources of targets.
    """
    scorer = scorer_of(model)
    asked = search(
        graph,
        choose_relation(graph, relation, None, "relation"),
        of=None if of is None else as_seeds(graph, of),
        known=None if include_known else KnownEdges(graph),
        side=side,
    )
    inferred = infer(model, graph, nodes=asked.nodes, **options)
    with _on_host(scorer):
        return joined(asked.chunks(ByNode(inferred.rows, asked.nodes, graph.num_nodes), scorer, k, room))


def nearest(
    model: nn.Module, graph: Graph, k: int, *, of: Any = None, room: int | str = ROOM, **options: Any
) -> Partners:
    """Return the k nodes of the same type whose rows point most nearly where a node's own does (cosine).

    `of` are global ids of one type, by default all nodes of the target type; the rest as in `partners`.
    """
    asked = near_search(graph, None if of is None else as_seeds(graph, of))
    inferred = infer(model, graph, nodes=asked.nodes, **options)
    scorer = Cosine(inferred.rows.shape[1])
    return joined(asked.chunks(ByNode(inferred.rows, asked.nodes, graph.num_nodes), scorer, k, room))


def near_search(graph: Graph, of: Tensor | None) -> "Search":
    """Return the search for nodes that are alike, among those of the type of the nodes asked for."""
    if of is None:
        rows = graph.target_rows
        return Search(torch.arange(rows.start, rows.stop), rows, None, None)
    kinds = torch.unique(torch.bucketize(of, torch.tensor(graph.node_offsets[1:-1]), right=True))
    if len(kinds) != 1:
        raise InputError("of: rows of nodes of one type are compared; ask for nodes of one type at a time")
    return Search(of, graph.rows_of_type(graph.node_types[int(kinds)]), None, None)


@dataclass(frozen=True, eq=False)
class Search:
    """Whose partners are looked for, and among whom."""

    sources: Tensor
    candidates: slice
    relation: Tensor | None
    known: Tensor | None
    side: End = "dst"
    itself: bool = False

    @property
    def nodes(self) -> Tensor:
        """All nodes whose rows are read, rising."""
        among = torch.arange(self.candidates.start, self.candidates.stop)
        distinct: Tensor = torch.unique(torch.cat([self.sources, among]))
        return distinct

    def chunks(self, h: RowSource, scorer: Scorer, k: int, room: int | str) -> Iterator[Partners]:
        """Give the k best partners of some sources after the other."""
        return partner_chunks(
            h,
            self.sources,
            scorer,
            k,
            candidates=self.candidates,
            relation=self.relation,
            known=self.known,
            side=self.side,
            itself=self.itself,
            memory=room,
        )


class KnownEdges:
    """The edges of a graph by relation, sorted once for all that is asked of them."""

    def __init__(self, graph: Graph) -> None:
        src, dst, kind = edge_ends(graph)
        order = torch.argsort(kind, stable=True)
        self._src, self._dst = src[order], dst[order]
        self._bounds = torch.searchsorted(kind[order], torch.arange(len(graph.edge_types) + 1)).tolist()

    def ends(self, relation: int, side: End) -> tuple[Tensor, Tensor]:
        """Return the ends of a relation's edges, those that are given before those that are asked for."""
        rows = slice(*self._bounds[relation : relation + 2])
        src, dst = self._src[rows], self._dst[rows]
        return (src, dst) if side == "dst" else (dst, src)


def search(
    graph: Graph,
    relation: int,
    *,
    of: Tensor | None,
    known: KnownEdges | None,
    side: End = "dst",
    itself: bool = False,
) -> Search:
    """Return the search for partners in a relation; the `known` ones are left out."""
    asked_type, _, asked = graph.edge_types[relation] if side == "dst" else graph.edge_types[relation][::-1]
    rows = graph.rows_of_type(asked_type)
    sources = torch.arange(rows.start, rows.stop) if of is None else _of_type(graph, of, asked_type, "of")
    left_out = None if known is None else pair_keys(*known.ends(relation, side), graph.num_nodes)
    kinds = None if graph.edge_type is None else torch.full_like(sources, relation)
    return Search(sources, graph.rows_of_type(asked), kinds, left_out, side, itself)


def choose_relation(graph: Graph, choice: Any, learned: Tensor | None, where: str) -> int:
    """Return the number of a relation, by its name or "source relation target"; the only one without.

    `learned` [R] bool says which can be meant.
    """
    names = relation_names(graph)
    able = [number for number in range(len(names)) if learned is None or bool(learned[number])]
    if choice is None and len(able) == 1:
        return able[0]
    words = choice if isinstance(choice, str) or choice is None else " ".join(map(str, choice))
    meant = [number for number in able if words in (names[number], graph.edge_types[number][1])]
    if len(meant) != 1:
        message = "name one" if choice is None else f"{words!r} is {'more than one' if meant else 'none'}"
        known = [names[number] for number in able]
        near = "" if words is None or meant else suggest(words, [kind[1] for kind in graph.edge_types])
        more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
        raise InputError(f"{where}: {near}{message} of {', '.join(map(repr, known[:_LISTED]))}{more}")
    return meant[0]


def scorer_of(model: nn.Module) -> Scorer:
    """Return what scores pairs of a model, or say that nothing does."""
    head = _head(model)
    if not isinstance(head, Scorer):
        raise InputError(
            f"partners: the model ends with {type(head).__name__}, which says something else of pairs than "
            "how well they go together; train with task.name = 'link_prediction'"
        )
    return head


def _head(model: nn.Module) -> nn.Module:
    head = head_of(own_of(model))
    if head is None or of_nodes(head):
        raise InputError(
            "the model says nothing of pairs: it has no head for them; train it with task.name = "
            "'link_prediction'"
        )
    return head


class _on_host:
    """Has a head on the host for a while: rows of nodes lie there."""

    def __init__(self, head: nn.Module) -> None:
        self.head = head
        self.home = next((weight.device for weight in head.parameters()), torch.device("cpu"))

    def __enter__(self) -> None:
        self.head.to("cpu")

    def __exit__(self, *_: object) -> None:
        self.head.to(self.home)


def _of_type(graph: Graph, nodes: Tensor, kind: str, name: str) -> Tensor:
    rows = graph.rows_of_type(kind)
    wrong = nodes[(nodes < rows.start) | (nodes >= rows.stop)]
    if wrong.numel():
        raise InputError(
            f"{name}: expected ids {rows.start:,} … {rows.stop - 1:,}, of {kind!r}, got {int(wrong[0]):,}"
        )
    return nodes
