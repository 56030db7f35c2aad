"""Graph: one typed CSR with node and edge data.

Nodes of all types share one id space, sorted by type; a node type is a range of it and an edge type a number
an edge carries. A plain graph is the case of one type, so nothing here has a heterogeneous twin. What users
give and get is in PyG's shapes: `edge_index` (2, E) source to target, `x`, `y`, masks, `(source, relation,
target)` triples.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from weft import kernels
from weft.errors import GraphError
from weft.graph import build, files, pyg, transforms
from weft.graph import checks as validate
from weft.graph.build import EdgeType, Parts, without_names
from weft.graph.ids import NodeIds
from weft.graph.message.block import Block
from weft.graph.node_data import AS_IT_IS, NodeData, TargetCounts
from weft.graph.row_ranges import out_degrees
from weft.graph.source import RowSource
from weft.graph.sparse import Features
from weft.graph.summary import summarise
from weft.graph.topology import Topology


class Graph(NodeData):
    """Nodes, edges and their data.

    >>> graph = Graph.from_edges([[0, 1, 2], [1, 2, 0]], x=[[1.0], [2.0], [3.0]])
    >>> graph
    Graph(num_nodes=3, num_edges=3, x=[3, 1])
    >>> graph.block().aggregate(graph.x).flatten().tolist()
    [3.0, 1.0, 2.0]
    """

    owned: None = None
    own_ids: None = None
    """All nodes count here; of what a worker holds some may be replicas."""

    def __init__(self, parts: Parts) -> None:
        """Hold parts that fit together; users call `from_edges`, `from_types`, `from_pyg` or `weft.load`."""
        self._parts = parts
        self._topology = parts.topology
        self.node_types: list[str] = parts.node_types
        self.node_offsets: list[int] = parts.node_offsets
        self.edge_types: list[EdgeType] = parts.edge_types
        self.node_data: dict[str, dict[str, Features]] = parts.node_data
        self.node_ids: dict[str, NodeIds] = parts.node_ids
        self.known_degrees: dict[tuple[str, int | None, bool], Tensor] = {}
        self._block: Block | None = None

    @classmethod
    def from_edges(
        cls,
        edge_index: Any,
        *,
        num_nodes: int | None = None,
        x: Any = None,
        y: Any = None,
        train_mask: Any = None,
        val_mask: Any = None,
        test_mask: Any = None,
        edge_type: Any = None,
        edge_weight: Any = None,
        edge_attr: Any = None,
        edge_time: Any = None,
        edge_data: Mapping[str, Any] | None = None,
        num_relations: int | None = None,
        node_ids: Any = None,
        check: bool = True,
    ) -> "Graph":
        """Return a graph of one node type from edges (2, E), source to target, and data by one row per node.

        Arrays may be torch or numpy, `x` also scipy or torch sparse. `y` is a class per node (-1: no label),
        0/1 columns, or a number to predict (nan: unknown); masks are boolean. Edge data and `edge_type`, the
        relation of each edge, are in the order of edges; `edge_data` are others by name, say "label" and
        "split". `node_ids` are your own names of the nodes. All is checked unless `check` is off.
        """
        masks = {"train_mask": train_mask, "val_mask": val_mask, "test_mask": test_mask}
        parts = build.from_edges(
            edge_index,
            {"x": x, "y": y, **masks},
            {"weight": edge_weight, "attr": edge_attr, "time": edge_time, **(edge_data or {})},
            num_nodes=num_nodes,
            edge_type=edge_type,
            num_relations=num_relations,
            node_ids=node_ids,
            check=check,
        )
        return cls(parts)

    @classmethod
    def from_types(
        cls,
        nodes: Mapping[str, Mapping[str, Any]],
        edges: Mapping[EdgeType, Any],
        *,
        target_type: str | None = None,
        check: bool = True,
    ) -> "Graph":
        """Return a graph of several node types and relations.

        `nodes` gives each type its data: x, y, masks, node_ids, or only num_nodes. `edges` gives each
        (source, relation, target) its edge_index, in the ids of the two types, and edge_weight, edge_attr,
        edge_time.

        >>> graph = Graph.from_types(
        ...     {"author": {"num_nodes": 2}, "paper": {"x": [[1.0], [2.0], [3.0]], "y": [0, 1, 0]}},
        ...     {("author", "writes", "paper"): [[0, 1, 1], [0, 1, 2]]},
        ... )
        >>> graph.edge_index.tolist(), graph.target_type
        ([[0, 1, 1], [2, 3, 4]], 'paper')
        """
        return cls(build.from_types(nodes, edges, target_type=target_type, check=check))

    @classmethod
    def from_pyg(cls, data: Any, *, check: bool = True) -> "Graph":
        """Return the graph of a PyG `Data` or `HeteroData`; tensors are shared where they can be."""
        return cls(pyg.parts_of(data, check=check))

    def to_pyg(self) -> Any:
        """Return a PyG `Data`, or a `HeteroData` where there are types, with edges in the user's order."""
        return pyg.data_of(self)

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the graph as a folder that appears whole or not at all; `weft.load` maps it back."""
        files.write(path, self.parts(), overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], verify: bool = True) -> "Graph":
        """Return the graph of a folder, arrays mapped from the files; `verify` compares checksums first."""
        return cls(files.read(path, verify))

    # Size and structure

    @property
    def num_nodes(self) -> int:
        """The number of nodes of all types."""
        return self._topology.num_nodes

    @property
    def num_edges(self) -> int:
        """The number of edges of all relations."""
        return self._topology.num_edges

    @property
    def num_relations(self) -> int:
        """The number of edge types."""
        return len(self.edge_types)

    @property
    def indptr(self) -> Tensor:
        """Incoming edges of node v are indptr[v] … indptr[v + 1] − 1, [N + 1] int64."""
        return self._topology.csr.indptr

    @property
    def indices(self) -> Tensor:
        """The source of each edge in canonical order, [E]."""
        return self._topology.csr.indices

    @property
    def edge_ids(self) -> Tensor:
        """The place of each edge, in canonical order, among the edges the user gave, [E]."""
        return self._topology.csr.edge_ids

    @property
    def edge_type(self) -> Tensor | None:
        """The relation of each edge in canonical order, [E] int32; None where there is one relation."""
        return self._topology.csr.edge_type

    @property
    def transposed(self) -> kernels.Transposed:
        """The edges by source; built on first use and kept."""
        return self._topology.transposed

    @property
    def edge_index(self) -> Tensor:
        """The edges (2, E) int64, source to target, in the user's order."""
        return self._topology.edge_index()

    @property
    def edge_data(self) -> dict[str, Tensor]:
        """Edge weight, attr, time and others by name, each [E, ...] in canonical order."""
        parts = self._parts  # read once and replaced whole: threads that make batches ask at the same time
        if not parts.edge_data_is_canonical:
            order = self.edge_ids.long()
            ordered = {name: value[order] for name, value in parts.edge_data.items()}
            self._parts = parts = replace(parts, edge_data=ordered, edge_data_is_canonical=True)
        return parts.edge_data

    @property
    def edge_columns(self) -> dict[str, list[int | None]]:
        """Where relations differ in edge data: columns each has of a name (0: one value, None: nothing)."""
        return self._parts.edge_columns

    def given_edge_type(self) -> Tensor | None:
        """Return the relation of each edge in the user's order, [E] int32; None for one relation."""
        return self._topology.edge_type()

    def given_edge_data(self) -> dict[str, Tensor]:
        """Return edge data by name in the user's order."""
        parts = self._parts
        if not parts.edge_data_is_canonical:
            return parts.edge_data
        return {name: self._topology.to_given_order(value) for name, value in self.edge_data.items()}

    @property
    def is_plain(self) -> bool:
        """Whether there is one node type and relations have no names: what PyG holds in a `Data`."""
        return without_names(self.node_types, self.edge_types)

    @property
    def device(self) -> torch.device:
        """Where the edges lie."""
        return self.indptr.device

    # Node data

    @property
    def target_type(self) -> str:
        """The node type that targets are of: one with a y, the first with a training mask if several have."""
        if self._parts.target_type is not None:
            return self._parts.target_type
        labelled = [kind for kind in self.node_types if "y" in self.node_data[kind]]
        split = [kind for kind in labelled if "train_mask" in self.node_data[kind]]
        return [*split, *labelled, *self.node_types][0]

    @property
    def target_rows(self) -> slice:  # type: ignore[override]
        """The global rows of the target type."""
        return self.rows_of_type(self.target_type)

    @property
    def target_counts(self) -> TargetCounts:  # type: ignore[override]
        """How many classes there are, and whether a node has several."""
        return TargetCounts.of(self.y)

    def rows_of_type(self, node_type: str) -> slice:
        """Return the range of global rows of a node type."""
        if node_type not in self.node_types:
            raise GraphError(f"no node type {node_type!r}; the graph has: {', '.join(self.node_types)}")
        number = self.node_types.index(node_type)
        return slice(self.node_offsets[number], self.node_offsets[number + 1])

    # Degrees and blocks

    def in_degree(self, relation: int | None = None, weighted: bool = False) -> Tensor:
        """Return the number of edges into each node, [N] float32, or their summed weight, float64; kept."""
        return self.degree("in", relation, weighted)

    def out_degree(self, relation: int | None = None, weighted: bool = False) -> Tensor:
        """Return the number of edges out of each node, [N] float32, or their summed weight, float64; kept."""
        return self.degree("out", relation, weighted)

    def own_out_degrees(self) -> tuple[Tensor, Tensor]:
        """Return the global ids of the rows that are here, all of them, and the edges out of each."""
        return torch.arange(self.num_nodes), self.out_degree()

    def ends(self) -> tuple[Tensor, Tensor]:
        """Return source and target of each edge that is here, all of them, [E] int64 global ids."""
        return self.indices.long(), torch.repeat_interleave(self.indptr.diff(), output_size=self.num_edges)

    def degree(self, direction: Literal["in", "out"], relation: int | None, weighted: bool) -> Tensor:
        """Return in_degree or out_degree; what blocks of this graph ask."""
        key = (direction, relation, weighted)
        if key not in self.known_degrees:
            self.known_degrees[key] = self._count_degree(*key)
        return self.known_degrees[key]

    def block(self, clock: Tensor | None = None) -> Block:
        """Return the block of the whole graph, the same one each time; a `clock` given replaces its clock."""
        if self._block is None:
            ranges = {kind: self.rows_of_type(kind) for kind in self.node_types}
            self._block = Block(
                self.indptr,
                self.indices,
                num_src=self.num_nodes,
                edge_type=self.edge_type,
                num_relations=self.num_relations,
                edge_data=self.edge_data,
                degrees=self,
                type_ranges={"src": ranges, "dst": ranges},
                transposed=lambda: self.transposed,
            )
        if clock is not None:
            self._block.clock = clock
        if len(self.node_types) == 1 and self.x is not None and not isinstance(self.x, RowSource):
            self._block.mark_constant(self.x)
        return self._block

    def summary(self) -> dict[str, Any]:
        """Return counts and degree statistics as plain numbers, for reports and JSON."""
        return summarise(self)

    # Changed copies; node data, masks and ids are shared with the original

    def symmetrise(self) -> "Graph":
        """Return the graph with every edge in both directions, once each; a new edge has its twin's data."""
        return transforms.symmetrise(self)

    def add_self_loops(self) -> "Graph":
        """Return the graph with a self loop on every node that had none."""
        return transforms.add_self_loops(self)

    def remove_self_loops(self) -> "Graph":
        """Return the graph without edges from a node to itself."""
        return transforms.remove_self_loops(self)

    def drop_duplicates(self) -> "Graph":
        """Return the graph with one edge for each source, target and relation: the first that was given."""
        return transforms.drop_duplicates(self)

    def add_inverse_relations(self) -> "Graph":
        """Return the graph with, for each relation, one more of its edges turned round."""
        return transforms.add_inverse_relations(self)

    def normalise_features(self) -> "Graph":
        """Return the graph with each row of x divided by the sum of its absolute values."""
        return transforms.normalise_features(self)

    def with_data(self, *, check: bool = True, **values: Any) -> "Graph":
        """Return the graph with node data replaced or added; None removes.

        Values are for the target type, or a dictionary by node type: `graph.with_data(x={"paper": x})`.
        """
        node_data = {kind: dict(data) for kind, data in self.node_data.items()}
        for name, value in values.items():
            per_type = value if isinstance(value, Mapping) else {self.target_type: value}
            for kind, column in per_type.items():
                self.rows_of_type(kind)
                node_data[kind].pop(name, None)
                if column is not None:
                    node_data[kind][name] = column
        checked = {}
        for kind, data in node_data.items():
            rows = self.rows_of_type(kind)
            checked[kind] = validate.as_node_data(data, rows.stop - rows.start, kind, check=check)
        return Graph(replace(self.parts(), node_data=checked))

    def with_edges(
        self,
        edge_index: Tensor,
        edge_type: Tensor | None,
        edge_data: Mapping[str, Tensor],
        *,
        edge_types: list[EdgeType] | None = None,
        edge_columns: dict[str, list[int | None]] | None = None,
    ) -> "Graph":
        """Return a graph of the same nodes with other edges, in global ids; nothing is checked."""
        changed = replace(
            self.parts(),
            topology=Topology.from_edges(self.num_nodes, edge_index, edge_type),
            edge_data=dict(edge_data),
            edge_data_is_canonical=False,
            edge_types=self.edge_types if edge_types is None else edge_types,
            edge_columns=self.edge_columns if edge_columns is None else edge_columns,
        )
        return Graph(changed)

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> "Graph":
        """Return the graph with floating node and edge data in `dtype`, and everything on `device`.

        Where nothing changes it is this graph itself, with all that it has built.
        """

        def moved(value: Any) -> Any:
            if dtype is not None and value.dtype.is_floating_point:
                value = _in_type(value, dtype)
            return value if device is None else value.to(device)

        node_data = {
            kind: {n: _to(value, device) if n in AS_IT_IS else moved(value) for n, value in data.items()}
            for kind, data in self.node_data.items()
        }
        edge_data = {
            name: moved(value) if name != "time" else value.to(device or value.device)
            for name, value in self.edge_data.items()
        }
        topology = self._topology if device is None else self._topology.to(device)
        before = [self._topology, *self.edge_data.values(), *_values(self.node_data)]
        if all(new is old for new, old in zip([topology, *edge_data.values(), *_values(node_data)], before)):
            return self
        changed = replace(self.parts(), topology=topology, node_data=node_data, edge_data=edge_data)
        return Graph(changed)

    def parts(self) -> Parts:
        """Return what the graph is made of, with edges in canonical order."""
        return replace(
            self._parts,
            topology=self._topology,
            node_data=self.node_data,
            edge_data=self.edge_data,
            edge_data_is_canonical=True,
        )

    def __repr__(self) -> str:
        parts = [f"num_nodes={self.num_nodes:,}", f"num_edges={self.num_edges:,}"]
        if len(self.node_types) > 1:
            parts.append(f"node_types={self.node_types}")
        if self.num_relations > 1:
            parts.append(f"num_relations={self.num_relations}")
        for kind, data in self.node_data.items():
            prefix = "" if len(self.node_types) == 1 else f"{kind}."
            parts += [f"{prefix}{name}={list(value.shape)}" for name, value in data.items()]
        return f"Graph({', '.join(parts)})"

    def _count_degree(self, direction: str, relation: int | None, weighted: bool) -> Tensor:
        indptr, kinds = self.indptr, self.edge_type
        if direction == "in" and not weighted and (relation is None or kinds is None):
            return (indptr[1:] - indptr[:-1]).float()
        if not weighted and (relation is None or kinds is None):
            return out_degrees(indptr, self.indices).float()
        if direction == "in":
            ends = torch.repeat_interleave(indptr[1:] - indptr[:-1], output_size=self.num_edges)
        else:
            ends = self.indices.long()
        weight = self.edge_data["weight"].double() if weighted and "weight" in self.edge_data else None
        if relation is not None and kinds is not None:
            chosen = kinds == relation
            ends, weight = ends[chosen], None if weight is None else weight[chosen]
        degree = torch.bincount(ends, weight, minlength=self.num_nodes)
        # Without edges bincount counts in integers, weights or not.
        return degree.double() if weight is not None else degree.float()


def _in_type(value: Any, dtype: torch.dtype) -> Any:
    """Return floating data in a type, or say that a number of it does not fit."""
    made = value.to(dtype)
    narrower = isinstance(value, Tensor) and value.dtype.itemsize > dtype.itemsize
    if narrower and bool((made.isinf() & value.isfinite()).any()):
        raise GraphError(
            f"the graph holds {value.abs().max():.3g}, which {str(dtype).removeprefix('torch.')} cannot; "
            "scale the data, or train with precision = 'float64'"
        )
    return made


def _to(value: Features, device: torch.device | str | None) -> Features:
    return value if device is None else value.to(device)


def _values(node_data: Mapping[str, Mapping[str, Features]]) -> list[Features]:
    return [value for data in node_data.values() for value in data.values()]
