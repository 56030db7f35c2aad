"""Graph: one typed CSR with node and edge data.

Nodes of all types share one id space, sorted by type; a node type is a range of it and an edge type a number an edge
carries. A plain graph is the case of one type, so nothing here has a heterogeneous twin. What users give and get is
in PyG's shapes: `edge_index` (2, E) source to target, `x`, `y`, masks, `(source, relation, target)` triples.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from weft import kernels
from weft.errors import GraphError
from weft.graph import validate
from weft.graph.block import Block
from weft.graph.sparse import Features
from weft.graph.topology import Csr, Topology, index_dtype

EdgeType = tuple[str, str, str]
NodeData = dict[str, dict[str, Features]]


class Graph:
    """Nodes, edges and their data.

    >>> graph = Graph.from_edges([[0, 1, 2], [1, 2, 0]], x=[[1.0], [2.0], [3.0]])
    >>> graph
    Graph(num_nodes=3, num_edges=3, x=[3, 1])
    >>> graph.block().aggregate(graph.x).flatten().tolist()
    [3.0, 1.0, 2.0]
    """

    def __init__(
        self,
        topology: Topology,
        *,
        node_data: NodeData,
        edge_data: Mapping[str, Tensor],
        node_types: Sequence[str] = ("node",),
        node_offsets: Sequence[int] | None = None,
        edge_types: Sequence[EdgeType] = (("node", "edge", "node"),),
        edge_data_is_canonical: bool = False,
    ) -> None:
        """Hold parts that fit together; users call `from_edges`, `from_types` or `from_pyg`."""
        self._topology = topology
        self.node_types = list(node_types)
        self.node_offsets = [0, topology.num_nodes] if node_offsets is None else list(node_offsets)
        self.edge_types = list(edge_types)
        self.node_data = node_data
        self._edge_data = dict(edge_data)
        self._edge_data_is_canonical = edge_data_is_canonical
        self._degrees: dict[tuple[str, int | None, bool], Tensor] = {}
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
        num_relations: int | None = None,
        check: bool = True,
    ) -> "Graph":
        """Return a graph of one node type from edges (2, E), source to target, and data in the order of ids."""
        edges = validate.as_edge_index(edge_index, check=check)
        masks = {"train_mask": train_mask, "val_mask": val_mask, "test_mask": test_mask}
        rows = {"x": x, "y": y, **masks}
        count = validate.infer_num_nodes(num_nodes, edges, rows)
        if check:
            validate.check_edge_range(edges, count, count)
        edge_types: list[EdgeType] = [("node", "edge", "node")]
        if edge_type is not None:
            edge_type, relations = validate.as_edge_type(edge_type, edges.shape[1], num_relations)
            if relations > 1:
                edge_types = [("node", str(relation), "node") for relation in range(relations)]
            else:
                edge_type = None
        given = {"weight": edge_weight, "attr": edge_attr, "time": edge_time}
        return cls(
            Topology.from_edges(count, edges, edge_type),
            node_data={"node": validate.as_node_data(rows, count, check=check)},
            edge_data={
                name: validate.as_edge_data(value, edges.shape[1], f"edge_{name}", check=check)
                for name, value in given.items()
                if value is not None
            },
            edge_types=edge_types,
        )

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
        if not self._edge_data_is_canonical:
            order = self.edge_ids.long()
            self._edge_data = {name: value[order] for name, value in self._edge_data.items()}
            self._edge_data_is_canonical = True
        return self._edge_data

    @property
    def device(self) -> torch.device:
        """Where the edges lie."""
        return self.indptr.device

    # Node data

    @property
    def x(self) -> Any:
        """The features: a matrix where there is one node type, else a matrix for each type that has one."""
        if len(self.node_types) == 1:
            return self.node_data[self.node_types[0]].get("x")
        return {kind: data["x"] for kind, data in self.node_data.items() if "x" in data}

    @property
    def target_type(self) -> str:
        """The node type that has labels (the first with a training mask, if several have)."""
        labelled = [kind for kind in self.node_types if "y" in self.node_data[kind]]
        split = [kind for kind in labelled if "train_mask" in self.node_data[kind]]
        return [*split, *labelled, *self.node_types][0]

    @property
    def target_rows(self) -> slice:
        """The global rows of the target type."""
        return self.rows_of_type(self.target_type)

    @property
    def y(self) -> Tensor | None:
        """The labels of the target type: [n] int64, or [n, C] float32 where a node has several."""
        return self._target("y")

    @property
    def train_mask(self) -> Tensor | None:
        """The nodes of the target type to train on, [n] bool."""
        return self._target("train_mask")

    @property
    def val_mask(self) -> Tensor | None:
        """The nodes of the target type to choose a model by, [n] bool."""
        return self._target("val_mask")

    @property
    def test_mask(self) -> Tensor | None:
        """The nodes of the target type to test on, [n] bool."""
        return self._target("test_mask")

    @property
    def multilabel(self) -> bool:
        """Whether a node has several labels."""
        return self.y is not None and self.y.dim() == 2

    @property
    def num_classes(self) -> int:
        """The number of classes: columns of a multi-label y, else the largest label + 1; 0 without labels."""
        if self.y is None or self.y.numel() == 0:
            return 0
        return self.y.shape[1] if self.multilabel else int(self.y.max()) + 1

    def rows_of_type(self, node_type: str) -> slice:
        """Return the range of global rows of a node type."""
        if node_type not in self.node_types:
            raise GraphError(f"no node type {node_type!r}; the graph has: {', '.join(self.node_types)}")
        place = self.node_types.index(node_type)
        return slice(self.node_offsets[place], self.node_offsets[place + 1])

    # Degrees and blocks

    def in_degree(self, relation: int | None = None, weighted: bool = False) -> Tensor:
        """Return the number (or summed weight) of edges into each node, [N] float32; kept."""
        return self.degree("in", relation, weighted)

    def out_degree(self, relation: int | None = None, weighted: bool = False) -> Tensor:
        """Return the number (or summed weight) of edges out of each node, [N] float32; kept."""
        return self.degree("out", relation, weighted)

    def degree(self, direction: Literal["in", "out"], relation: int | None, weighted: bool) -> Tensor:
        """Return in_degree or out_degree; what blocks of this graph ask."""
        key = (direction, relation, weighted)
        if key not in self._degrees:
            self._degrees[key] = self._count_degree(*key)
        return self._degrees[key]

    def block(self, clock: Tensor | None = None) -> Block:
        """Return the block of the whole graph, the same one each time; a `clock` given here replaces its clock."""
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
        if len(self.node_types) == 1 and self.x is not None:
            self._block.mark_constant(self.x)
        return self._block

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

    def _target(self, name: str) -> Tensor | None:
        value = self.node_data[self.target_type].get(name)
        assert value is None or isinstance(value, Tensor)
        return value

    def _count_degree(self, direction: str, relation: int | None, weighted: bool) -> Tensor:
        indptr, kinds = self.indptr, self.edge_type
        if direction == "in" and not weighted and (relation is None or kinds is None):
            return (indptr[1:] - indptr[:-1]).float()
        if direction == "in":
            ends = torch.repeat_interleave(indptr[1:] - indptr[:-1], output_size=self.num_edges)
        else:
            ends = self.indices.long()
        weight = self.edge_data["weight"].double() if weighted and "weight" in self.edge_data else None
        if relation is not None and kinds is not None:
            chosen = kinds == relation
            ends, weight = ends[chosen], None if weight is None else weight[chosen]
        return torch.bincount(ends, weight, minlength=self.num_nodes).float()
