"""What was found of pairs, as Parquet files by the user's own ids, whole or not at all."""

import os
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.format import new_file
from weft.graph.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.registry import require
from weft.tasks.partners import Partners
from weft.tasks.scores import End

Path = str | os.PathLike[str]


def write_partners(path: Path, graph: Graph, partners: Partners | Iterable[Partners]) -> None:
    """Write one row per source and rank: source, rank (from 1), target, score.

    Of a graph with several node types `source_type` and `target_type` stand before the ids. `partners` may be
    what `partner_chunks` gives, which is then written as it comes.
    """
    names = _Names(graph)
    chunks = [partners] if isinstance(partners, Partners) else partners
    write_tables(path, (_partner_columns(names, one) for one in chunks))


def write_pairs(path: Path, graph: Graph, chunks: Iterable[tuple[Pairs, Mapping[str, Any]]]) -> None:
    """Write one row per pair: source, target, and the columns that are said of pairs, some at a time.

    Types stand as in `write_partners`, and `relation` first where the graph has several.
    """
    names = _Names(graph)
    write_tables(
        path,
        (
            names.relations(pairs)
            | names.columns("source", pairs.src)
            | names.columns("target", pairs.dst)
            | dict(said)
            for pairs, said in chunks
        ),
    )


def write_answers(path: Path, graph: Graph, chunks: Iterable[tuple[Partners, Tensor, int, End]]) -> None:
    """Write one row per question and rank: question (from 1), rank, head, relation, tail, score.

    Each of `chunks` are the partners that answer questions of these rows, in a relation, at an end.
    """
    names = _Names(graph)
    write_tables(path, (_answer_columns(names, *one) for one in chunks))


def write_tables(path: Path, tables: Iterable[dict[str, Any]]) -> None:
    """Write a Parquet file of columns that come a few rows at a time; without any row, once empty."""
    arrow, parquet = require("pyarrow", "data"), require("pyarrow.parquet", "data")
    rows = map(arrow.table, tables)
    with new_file(path) as partial:
        first = next(rows)
        with parquet.ParquetWriter(partial, first.schema) as writer:
            for table in chain([first], rows):
                writer.write_table(table)


class _Names:
    """The ids that the user gave to nodes; without any, their numbers within their type."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ids = {kind: ids.values for kind, ids in graph.node_ids.items()}
        self.texts = any(values.dtype.kind == "U" for values in self.ids.values())  # one kind for all types

    def columns(self, name: str, nodes: Tensor) -> dict[str, NDArray[Any]]:
        """Return the ids of nodes as a column, after one of their types where there are several."""
        graph, ids = self.graph, np.empty(len(nodes), dtype=object if self.texts else np.int64)
        kinds = torch.bucketize(nodes, torch.tensor(graph.node_offsets[1:-1]), right=True).numpy()
        for number in np.unique(kinds):
            rows, kind = np.flatnonzero(kinds == number), graph.node_types[number]
            local = nodes.numpy()[rows] - graph.node_offsets[number]
            ids[rows] = self.ids[kind][local] if kind in self.ids else local
        types = {f"{name}_type": np.array(graph.node_types)[kinds]} if len(graph.node_types) > 1 else {}
        return {**types, name: ids.astype(str) if self.texts else ids}

    def relations(self, pairs: Pairs) -> dict[str, NDArray[Any]]:
        """Return the names of the relations of pairs as a column, where there are several."""
        if pairs.relation is None or self.graph.num_relations == 1:
            return {}
        return {"relation": np.array(relation_names(self.graph))[pairs.relation.numpy()]}


def relation_names(graph: Graph) -> list[str]:
    """Return the names that files have for relations: "source relation target"."""
    return [" ".join(kind) for kind in graph.edge_types]


def _partner_columns(names: _Names, partners: Partners) -> dict[str, Any]:
    row, rank = (partners.ids >= 0).cpu().nonzero(as_tuple=True)
    ids, scores = partners.ids.cpu()[row, rank], partners.scores.cpu()[row, rank]
    source = names.columns("source", partners.sources.cpu()[row])
    ranks = {"rank": (rank + 1).int().numpy()}
    return source | ranks | names.columns("target", ids) | {"score": _numpy(scores)}


def _answer_columns(
    names: _Names, partners: Partners, rows: Tensor, relation: int, side: End
) -> dict[str, Any]:
    row, rank = (partners.ids >= 0).cpu().nonzero(as_tuple=True)
    known, answer = partners.sources.cpu()[row], partners.ids.cpu()[row, rank]
    head, tail = (known, answer) if side == "dst" else (answer, known)
    word = names.graph.edge_types[relation][1]
    columns = {"question": rows[row].numpy() + 1, "rank": (rank + 1).int().numpy()}
    columns |= names.columns("head", head) | {"relation": np.full(len(row), word)}
    return columns | names.columns("tail", tail) | {"score": _numpy(partners.scores.cpu()[row, rank])}


def _numpy(scores: Tensor) -> NDArray[Any]:
    values: NDArray[Any] = scores.detach().cpu().numpy()
    return values
