"""What tasks of edges share: a target is an edge whose label is known, and a head on both its ends says it.

That the edge is there is no secret; its label is, and leaves the data of all edges. Validation and test edges
are no messages.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from weft.errors import RecipeError
from weft.graph.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.layers.base import GraphInfo
from weft.samplers.edges import EdgeBatch
from weft.tasks.base import Rows, Targets
from weft.tasks.edge_head import EdgeHead
from weft.tasks.pairs import Hide, PairTask, head_for, naming_options
from weft.tasks.scores import rows_at
from weft.tasks.split import split_pairs


class EdgeTask(PairTask):
    """A task whose targets are edges with something to predict. A subclass says how many columns tell it."""

    usual_hide: ClassVar[Hide] = "none"

    def __init__(
        self, *, label: str = "label", edge_data: Sequence[str] | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self.label = label
        self.edge_data = None if edge_data is None else list(edge_data)

    def labelled(self, graph: Graph) -> Graph:
        """Return the graph with its labels as they are predicted."""
        return graph

    def prepared(self, graph: Graph) -> Graph:
        """Return the graph without validation and test edges, and without labels."""
        return super().prepared(self.labelled(graph))

    def shown(self, graph: Graph, *, all_edges: bool = False) -> Graph:
        """Return the message graph of training, or all edges; labels tell what the head is made of."""
        if all_edges:
            whole = self.labelled(graph)
            with naming_options():
                _, self._pairs = split_pairs(
                    whole, target=self.target, label=self.label, by="random", val=0.0, test=0.0
                )
        return super().shown(graph, all_edges=all_edges)

    def make_targets(self, pairs: Pairs, split: str) -> Targets:
        """Return own edges as targets."""
        return EdgeTargets(self, pairs)

    def make_head(self, columns: int, info: GraphInfo) -> nn.Module | None:
        """Return the head on both ends of an edge and what is known of it."""
        some = next(iter(self._pairs.values()))
        known = self.known_of(some.take(torch.arange(0)))
        width = 0 if known is None else known.shape[1]
        relations = 1 if some.relation is None else info.num_relations
        return EdgeHead(columns, self.width, width, num_relations=relations, then=self.make_end())

    def make_end(self) -> nn.Module | None:
        """Return what the head's outputs go through at last, if anything."""
        return None

    @property
    def reads(self) -> Sequence[str]:
        """The names of the edge data that the head reads; once there are edges."""
        data = next(iter(self._pairs.values())).data
        return sorted(data) if self.edge_data is None else self.edge_data

    def known_of(self, pairs: Pairs) -> Tensor | None:
        """Return what a model may read of edges, [n, columns] float32; None where there is nothing."""
        names = sorted(pairs.data) if self.edge_data is None else self.edge_data
        for name in names:
            if name not in pairs.data:
                there = ", ".join(sorted(pairs.data)) or "none"
                raise RecipeError(f"task.edge_data: edges have no {name!r} to read; there are: {there}")
        columns = [_columns(pairs.data[name]) for name in names]
        return torch.cat(columns, 1) if columns else None

    def of_pairs(self, model: nn.Module, src: Tensor, dst: Tensor, pairs: Pairs) -> Tensor:
        """Return what is said of edges, [n, columns], from the rows of their ends [n, d]."""
        return _said(model, src, dst, pairs.relation, self.known_of(pairs))

    def of_batch(self, model: nn.Module, h: Tensor, batch: EdgeBatch) -> Tensor:
        """Return the outputs of a batch's own edges."""
        return self.of_pairs(model, rows_at(h, batch.src), rows_at(h, batch.dst), batch.pairs)

    def values_of_batch(self, batch: EdgeBatch) -> Tensor:
        """Return the labels of a batch's own edges."""
        assert batch.pairs.y is not None, "targets have labels"
        return batch.pairs.y.to(batch.src.device)


class EdgeTargets(Targets):
    """Own edges of one split, and the rows of their ends that are asked for."""

    def __init__(self, task: EdgeTask, pairs: Pairs) -> None:
        assert pairs.y is not None, "a label is split with its edges"
        self.task, self.pairs, self.y = task, pairs, pairs.y
        self._ends, places = torch.unique(torch.cat([pairs.src, pairs.dst]), return_inverse=True)
        self._src, self._dst = places[: len(pairs)], places[len(pairs) :]
        self._relation, self._known = pairs.relation, task.known_of(pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def outputs(self, model: nn.Module, h: Tensor, rows: Rows, epoch: int) -> Tensor:
        """Return one row of outputs per edge, from rows of ends wherever these are."""
        end_rows = rows(h, self._ends)
        if self.y.device != end_rows.device:
            self.y = self.y.to(end_rows.device)
            self._src, self._dst = self._src.to(end_rows.device), self._dst.to(end_rows.device)
            self._relation, self._known = _at(end_rows.device, self._relation, self._known)
        return _said(
            model, rows_at(end_rows, self._src), rows_at(end_rows, self._dst), self._relation, self._known
        )


def _said(
    model: nn.Module, src: Tensor, dst: Tensor, relation: Tensor | None, known: Tensor | None
) -> Tensor:
    """Return the outputs of the head for edges, where the rows of their ends are."""
    outputs: Tensor = head_for(model, src)(src, dst, *_at(src.device, relation, known))
    return outputs


def _at(device: torch.device, *values: Tensor | None) -> list[Tensor | None]:
    """Return values on a device, those that there are."""
    return [None if each is None else each.to(device) for each in values]


def _columns(values: Tensor) -> Tensor:
    return (values.flatten(1) if values.dim() > 1 else values.unsqueeze(1)).float()
