"""Messages that look matrices up by relation: what depends on a source and the relation runs once a pair.

An edge reads a row of its (relation, source) pair, of which there are at most as many as edges, and at most
as many as relations × sources: no other way takes fewer products. Over these pairs as sources the message is
one as any other: the relation is given with the row, and residency does the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, fx

from weft.compiler.annotate import residency
from weft.compiler.graphs import name_of, tidy, value
from weft.compiler.levels import taken
from weft.compiler.programs.program import Edges
from weft.compiler.stages import Stage, stage
from weft.compiler.tracing.trace import EDGES
from weft.compiler.unread import Unread
from weft.kernels import gather
from weft.kernels.relation import check_relations


@dataclass(frozen=True)
class ByRelation:
    """What a message takes of sources and relations before its sources are pairs."""

    graph: fx.Graph
    """What makes it, of the inputs of the message."""
    before: Stage
    """Gives the relation of each edge, then values of sources: the rows that pairs read."""
    relations: int
    unread: Unread = ()
    """The inputs of nodes that `before` makes something of."""

    def pairs(self, kind: Tensor, edges: Edges) -> "RelationPairs":
        """Return the pairs that edges of some relations read, sorted."""
        check_relations(kind, self.relations)
        sources = max(1, edges.num_other)
        keys = (kind.long() + self.relations) * sources + edges.other.long()
        occurring, place = torch.unique(keys, return_inverse=True)
        kinds = occurring.div(sources, rounding_mode="floor") - self.relations
        over = Edges(edges.indptr, place.to(edges.other.dtype), len(occurring))
        return RelationPairs(occurring % sources, kinds.to(kind.dtype), over)


@dataclass(frozen=True)
class RelationPairs:
    """The (relation, source) pairs that occur."""

    sources: Tensor
    kinds: Tensor
    edges: Edges
    """The same edges, with the pairs in the place of sources."""

    def inputs(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Return what the message takes after its other inputs, of values of sources."""
        return [self.kinds, *(gather(each.contiguous(), self.sources) for each in values)]


def by_relation(graph: fx.Graph) -> ByRelation | None:
    """Have a graph take pairs as sources, and return what comes before; None: it has no product of such.

    The inputs that it takes then come after those that it had.
    """
    products = [node for node in graph.nodes if _of_pairs(node)]
    if not products:
        return None
    kind, table = products[0].args[0], products[0].args[2]
    read = [node for node in graph.nodes if residency(node) == "source" and _is_read(node)]
    if any(not isinstance(each.meta["val"], Tensor) or value(each).shape[0] != EDGES for each in read):
        return None
    inputs = [node for node in graph.nodes if node.op == "placeholder" and node.name != "count"]
    cut = [kind, *read]
    made = ByRelation(taken(graph, cut), stage(inputs, cut), value(table).shape[0])
    _give(graph, cut)
    return made


def _of_pairs(node: fx.Node) -> bool:
    if name_of(node) != "relation_matmul":
        return False
    kind, rows, table = node.all_input_nodes
    return [residency(each) for each in (kind, rows, table)] == ["edge", "source", "shared"]


def _is_read(node: fx.Node) -> bool:
    """Return whether a value of sources is read by what is none."""
    return any(each.op != "output" and residency(each) != "source" for each in node.users)


def _give(graph: fx.Graph, cut: Sequence[fx.Node]) -> None:
    """Put inputs of sources in the place of values, and forget where what is made of them lived."""
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    changed: set[fx.Node] = set()
    for place, node in enumerate(cut):
        with graph.inserting_after(last):
            last = graph.placeholder(f"pair_{place}")
        last.meta.update(role="source", val=value(node))
        node.replace_all_uses_with(last)
        changed.add(last)
    for node in graph.nodes:
        if not changed.isdisjoint(node.all_input_nodes):
            node.meta.pop("residency", None)
            changed.add(node)
    tidy(graph)
