"""What records with features by value tell of their graph: all that training reads, without the graph.

A worker holds what is known of its own records, and nothing of the size of the graph. Degrees and edge data
of a batch are found by the ids of its nodes and edges, in the records that it was made of.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.errors import GraphError, InputError, RecipeError
from weft.graph.node_data import NodeData, TargetCounts, data_by_splits
from weft.graph.sparse import Features
from weft.strategies.records.batch_blocks import Ints, Parts, gather
from weft.strategies.records.record_loader import RecordFiles


class RecordGraph(NodeData):
    """One worker's records under the names that a graph has: counts are those of the graph, rows its targets.

    The rows are its share of the training records, then of the others, split by split.
    """

    owned = None
    """All rows count here."""
    own_ids = None

    def __init__(
        self, files: RecordFiles, *, rank: int = 0, workers: int = 1, dtype: torch.dtype | None = None
    ) -> None:
        check_whole(files)
        manifest = files.manifest
        self.files, self.rank, self.workers = files, rank, workers
        self.dtype = torch.get_default_dtype() if dtype is None else dtype
        self.node_types, self.node_offsets = list(manifest["node_types"]), list(manifest["node_offsets"])
        self.edge_types = [tuple(kind) for kind in manifest["edge_types"]]
        self.num_nodes, self.num_edges = self.node_offsets[-1], int(manifest["num_edges"])
        self.num_relations = len(self.edge_types) if manifest["typed_edges"] else 1
        self.target_counts = TargetCounts.read(manifest)
        self.self_loops = bool(manifest["self_loops"])
        self.indptr = torch.zeros(1, dtype=torch.int64)  # of no edge: where a graph lies is where it is asked
        self.edge_data = {name: torch.zeros(0, *shape) for name, shape in manifest["edge_data"].items()}
        self.node_data: dict[str, dict[str, Features]] = {kind: {} for kind in self.node_types}
        for entry in manifest["values"]:
            self.node_data[entry["type"]]["x"] = torch.zeros(0, entry["width"], dtype=self.dtype)
        self._read_targets()

    @property
    def target_type(self) -> str:
        return str(self.files.manifest["target_type"])

    def to(self, *, dtype: torch.dtype) -> "RecordGraph":
        """Return the same with features in a type."""
        return RecordGraph(self.files, rank=self.rank, workers=self.workers, dtype=dtype)

    def summary(self) -> dict[str, Any]:
        """Return what the records tell of the graph."""
        counts = zip(self.node_types, self.node_offsets, self.node_offsets[1:])
        dtype = str(self.dtype).removeprefix("torch.")
        return {
            "num_nodes": self.num_nodes,
            "num_edges": self.num_edges,
            **self.target_counts._asdict(),
            "node_types": {kind: stop - start for kind, start, stop in counts},
            "features": {
                entry["type"]: {"columns": entry["width"], "sparse": False, "dtype": dtype}
                for entry in self.files.manifest["values"]
            },
            "edge_data": {name: list(shape) for name, shape in self.files.manifest["edge_data"].items()},
            "split": self.files.splits,
        }

    @property
    def graph(self) -> "RecordGraph":
        """The graph of a batch: what the records tell of it."""
        return self

    @property
    def columns(self) -> list[str]:
        """What is read of the records beside their edges and features."""
        return ["y", *self.files.lists()]

    def targets(self, parts: Parts) -> dict[str, Tensor]:
        """Return what is known of the targets of some records, in their order."""
        values = [records.lists["y"][1][gather(records.lists["y"][0], rows)] for records, rows in parts]
        return {"y": self.target_counts.as_y(np.concatenate(values))}

    def known(self, parts: Parts, edge: Ints) -> "RecordValues":
        """Return degrees and edge data of some records, whose edges are given, by id."""
        return RecordValues(self, parts, edge)

    def _read_targets(self) -> None:
        """Read what is known of the own records of each split."""
        known, sizes = [], {}
        for split in self.files.splits:
            low, high = self.files.range_of(split, self.rank, self.workers)
            known.append(self.target_counts.as_y(self.files.known(low, high)))
            sizes[split] = high - low
        y = torch.cat(known)
        self.node_data[self.target_type].update(data_by_splits(y, sizes))
        self.target_rows = slice(0, len(y))
        self.first = dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist()))
        """The first row of each split."""


def check_whole(files: RecordFiles) -> None:
    """Refuse records that do not hold all that training and evaluation read."""
    files.check_kind()
    again = "weft flatten GRAPH --features value --targets train,val,test"
    if files.manifest["features"] != "value":
        raise RecipeError(
            f"strategy.evaluate = 'records': {files.folder} refers to the graph for features; make records "
            f"that hold them: {again}"
        )
    sparse = [entry["type"] for entry in files.manifest["values"] if entry["sparse"]]
    if sparse or not files.manifest["values"]:
        what = f"sparse features of {sparse[0]!r}" if sparse else "no features"
        raise RecipeError(
            f"strategy.evaluate = 'records': {files.folder} holds {what}, which are read from the graph; use "
            "'exact' where it is, or flatten a graph with a dense x"
        )
    if not files.tell_y:
        raise InputError(f"{files.folder}: records without y, which training needs: flatten a graph with one")


class ById:
    """Values of some ids, read by id as if there were those of all."""

    def __init__(self, ids: Ints, values: NDArray[Any], dtype: torch.dtype) -> None:
        known, first = np.unique(ids, return_index=True)
        self.ids, self.values = torch.from_numpy(known), torch.from_numpy(values[first]).to(dtype)

    def __getitem__(self, ids: Tensor) -> Tensor:
        return self.values[torch.searchsorted(self.ids, ids)]


class RecordValues:
    """Degrees and edge data of the records of a batch, under the names that a graph has."""

    def __init__(self, graph: RecordGraph, parts: Parts, edge: Ints) -> None:
        self.parts, self.edge, self.graph = parts, edge, graph
        self.node_types, self.node_offsets = graph.node_types, graph.node_offsets
        self.num_relations = graph.num_relations
        typed = bool(graph.files.manifest["typed_edges"])
        self.edge_type: Any = ById(edge, self._items("edge.type"), torch.int32) if typed else None
        self.edge_data: dict[str, Any] = {
            name: self._edge_values(name, shape) for name, shape in graph.files.manifest["edge_data"].items()
        }
        ids = [records.nodes[gather(records.node_ends, rows)] for records, rows in parts]  # type: ignore[index,arg-type]
        self.nodes: Ints = np.concatenate(ids)

    def degree(self, direction: Literal["in", "out"], relation: int | None, weighted: bool) -> Any:
        """Return the in-degrees in the whole graph, by id."""
        if direction == "out" or (weighted and relation is not None):
            what = "out-degrees" if direction == "out" else "weighted degrees by relation"
            raise GraphError(
                f"{what} are not in the records; train with the graph: strategy.evaluate = 'exact'"
            )
        if relation is not None and self.edge_type is not None:
            return ById(self.nodes, self._in_relation(relation), torch.float32)
        if weighted and "weight" in self.edge_data:
            return ById(self.nodes, self._items("degree.weight"), torch.float64)
        return ById(self.nodes, self._items("degree"), torch.float32)

    def _in_relation(self, relation: int) -> NDArray[Any]:
        """Return the edges of a relation into each node of the records."""
        node = np.repeat(np.arange(len(self.nodes)), self._items("degree.relations"))
        chosen = self._items("degree.relation") == relation
        return np.bincount(node[chosen], self._items("degree.edges")[chosen], minlength=len(self.nodes))

    def _edge_values(self, name: str, shape: Sequence[int]) -> ById:
        values = self._items(f"edge.{name}").reshape(len(self.edge), *shape)
        dtype = self.graph.dtype if name != "time" else torch.from_numpy(values).dtype
        return ById(self.edge, values, dtype)

    def _items(self, name: str) -> NDArray[Any]:
        """Return a column of all records, one after the other."""
        lists = [records.lists[name] for records, _ in self.parts]
        items_of = [items[gather(ends, rows)] for (ends, items), (_, rows) in zip(lists, self.parts)]
        return np.concatenate(items_of)
