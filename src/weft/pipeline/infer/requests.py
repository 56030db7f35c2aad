"""What is asked for: nodes or pairs in files of the user's own ids."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.errors import FormatError, GraphError
from weft.format import as_path
from weft.graph.graph import Graph
from weft.graph.ids import NodeIds
from weft.graph.node_pairs import Pairs
from weft.pipeline.infer.write import of_words
from weft.reading.damage import reading
from weft.registry import require
from weft.tasks.scores import End
from weft.train.inference.links import choose_relation

if TYPE_CHECKING:
    import pyarrow as pa

ATTR = "attr"
"""The edge data that features of edges become."""


def read_nodes(graph: Graph, path: str | Path | None, kind: str | None = None) -> Tensor:
    """Return the global ids of the nodes that a file of the user's ids names; without one, of the targets.

    The file is Parquet or CSV with a column `id` (or one column) and, where the graph has several node
    types, `type` (`kind`; the target type). Without labels in the graph there is no target type: then all
    nodes are meant.
    """
    if path is None:
        meant = graph.target_rows if graph.is_labelled else slice(0, graph.num_nodes)
        return torch.arange(meant.start, meant.stop)
    table = _read_table(as_path(path), "ids")
    if "id" not in table.column_names and table.num_columns != 1:
        raise FormatError(f"{path}: no column 'id'; it has: {', '.join(table.column_names)}")
    if "id" not in table.column_names and _is_an_id(graph, table.column_names[0], path):
        raise FormatError(f"{path}: the first line is an id itself; put a line with the word id before it")
    ids = table.column("id" if "id" in table.column_names else 0)
    kinds = table.column("type").to_pylist() if "type" in table.column_names else None
    if kinds is None and len(graph.node_types) > 1:
        kinds = [kind or graph.target_type] * len(ids)
    found = np.empty(len(ids), dtype=np.int64)
    places = np.array(kinds if kinds is not None else [graph.node_types[0]] * len(ids))
    for name in sorted(set(places.tolist())):
        rows = np.flatnonzero(places == name)
        found[rows] = _find(graph, name, ids.take(rows), path)
    wanted = torch.from_numpy(found)
    if len(np.unique(found)) < len(found):
        raise GraphError(f"{path}: an id is there twice; ask for each node once")
    # Rows of a batch are sorted by type.
    return wanted if len(graph.node_types) == 1 else wanted.sort().values


def read_pairs(
    graph: Graph,
    path: str | Path,
    learned: Tensor,
    reads: Sequence[str] = (),
    features: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Pairs:
    """Return the pairs that a file of the user's ids names.

    It is Parquet or CSV with columns `source` and `target`, or `head` and `tail`, and `relation` where the
    graph has several that were learned, [R] bool. `reads` are the names of edge data that it must have
    columns of, too; instead of `attr` those that it was made of, `features` by relation.
    """
    table = _with_ends(_read_table(as_path(path), "pairs"))
    made = ATTR in reads and ATTR not in table.column_names and bool(features)
    for name in ("source", "target", *(name for name in reads if name != ATTR or not made)):
        if name not in table.column_names:
            raise FormatError(f"{path}: no column {name!r}; it has: {', '.join(table.column_names)}")
    relations = _relations(graph, table, learned, path)
    ends = [np.empty(len(table), dtype=np.int64) for _ in range(2)]
    for number in np.unique(relations):
        rows = np.flatnonzero(relations == number)
        kinds = graph.edge_types[number]
        for end, kind, name in zip(ends, (kinds[0], kinds[2]), ("source", "target")):
            end[rows] = _find(graph, kind, table.column(name).take(rows), path)
    several = torch.from_numpy(relations) if graph.edge_type is not None else None
    plain = [name for name in reads if name != ATTR or not made]
    data = {name: _values(table, name, graph.edge_data[name], path) for name in plain}
    if made:
        data[ATTR] = _attr(graph, table, relations, features, path)
    src, dst = map(torch.from_numpy, ends)
    return Pairs(src, dst, relation=several, data=data)


@dataclass(frozen=True, eq=False)
class Question:
    """Who the other ends of pairs of one relation are: one row per question."""

    relation: int
    side: End
    """The end that is asked for."""
    given: Tensor
    """[n] global ids of the other ends"""
    rows: Tensor
    """[n] the rows of the file, from 0"""


def read_questions(graph: Graph, path: str | Path, learned: Tensor) -> list[Question]:
    """Return what a file asks for, by relation and end, in the order in which they come first.

    It has columns `head` and `relation`, or `relation` and `tail`, or all three, one end of each row empty.
    """
    table = _with_ends(_read_table(as_path(path), "questions"))
    ends = {name: table.column(name) for name in ("source", "target") if name in table.column_names}
    if not ends:
        raise FormatError(f"{path}: no column 'head' or 'tail'; it has: {', '.join(table.column_names)}")
    there = {name: _is_there(column) for name, column in ends.items()}
    none = np.zeros(len(table), dtype=bool)
    heads, tails = there.get("source", none), there.get("target", none)
    if bool((heads == tails).any()):
        row = int(np.flatnonzero(heads == tails)[0])
        message = "both a head and a tail" if heads[row] else "neither a head nor a tail"
        raise FormatError(f"{path}: row {row + 1:,} has {message}; leave the end that is asked for empty")
    relations, found = _relations(graph, table, learned, path), []
    groups = np.stack([relations, tails])
    for number, by_tail in dict.fromkeys(map(tuple, groups.T.tolist())):
        rows = np.flatnonzero((relations == number) & (tails == by_tail))
        name, place = ("target", 2) if by_tail else ("source", 0)
        ids = _find(graph, graph.edge_types[number][place], ends[name].take(rows), path)
        side: End = "src" if by_tail else "dst"
        found.append(Question(number, side, torch.from_numpy(ids), torch.from_numpy(rows)))
    return found


def _is_there(column: Any) -> NDArray[np.bool_]:
    return np.array([value is not None and value != "" for value in column.to_pylist()], dtype=bool)


def _with_ends(table: "pa.Table") -> "pa.Table":
    """Return a table whose ends are called source and target, also where the file has head and tail."""
    called = {"head": "source", "tail": "target"}
    names = [called.get(name, name) if called.get(name) not in table.column_names else name
             for name in table.column_names]  # fmt: skip
    return table.rename_columns(names)


def _values(table: "pa.Table", name: str, like: Tensor, path: Any) -> Tensor:
    """Return a column of numbers, or of lists of as many as edges have."""
    import pyarrow as pa

    column = table.column(name).combine_chunks()
    width = like.shape[1:].numel()
    try:
        flat = column.flatten() if like.dim() > 1 else column
        values = torch.from_numpy(np.array(flat.cast(pa.float64()).to_numpy(zero_copy_only=False)))
        return values.reshape(len(column), *like.shape[1:]).to(like.dtype)
    except (pa.ArrowException, AttributeError, RuntimeError):
        message = "a number" if like.dim() == 1 else f"a list of {width} numbers"
        raise FormatError(f"{path}: {name!r} must hold {message} for each pair, as edges do") from None


def _attr(
    graph: Graph,
    table: "pa.Table",
    relations: NDArray[np.int64],
    features: Mapping[str, Sequence[str]],
    path: Any,
) -> Tensor:
    """Return edge data `attr` of pairs, from the columns that it was made of when tables were read."""
    like = graph.edge_data[ATTR]
    attr = like.new_zeros(len(table), *like.shape[1:])
    for number in np.unique(relations):
        rows = np.flatnonzero(relations == number)
        some = table.take(rows)
        for place, name in enumerate(features.get(" ".join(graph.edge_types[number]), ())):
            attr[rows, place] = _feature(some, name, path).to(attr.dtype)
    return attr


def _feature(table: "pa.Table", name: str, path: Any) -> Tensor:
    """Return one feature of pairs: a column of numbers, or whether one of words is "column=word"."""
    column, _, word = name.partition("=")
    if name in table.column_names:
        return _values(table, name, torch.zeros(0), path)
    if not word or column not in table.column_names:
        have = ", ".join(table.column_names)
        raise FormatError(f"{path}: no column {column!r}, which edges have; it has: {have}")
    return torch.tensor([str(value) == word for value in table.column(column).to_pylist()])


def _relations(graph: Graph, table: "pa.Table", learned: Tensor, path: Any) -> NDArray[np.int64]:
    """Return the number of the relation of each row."""
    if "relation" in table.column_names:
        words = table.column("relation").to_pylist()
        known = {word: choose_relation(graph, word, learned, f"{path}: relation") for word in {*words}}
        return np.array([known[word] for word in words], dtype=np.int64)
    number = choose_relation(graph, None, learned, f"{path}: a column 'relation'")
    return np.full(len(table), number, dtype=np.int64)


def _is_an_id(graph: Graph, word: str, path: Any) -> bool:
    """Return whether a word, given as the name of a column, is the id of a node."""
    import pyarrow as pa

    for kind in graph.node_types:
        try:
            _find(graph, kind, pa.array([word]), path)
        except GraphError:
            continue
        return True
    return False


def _find(graph: Graph, kind: str, ids: Any, path: Any) -> NDArray[np.int64]:
    """Return the global ids of nodes of a type, by the user's."""
    import pyarrow as pa

    words = of_words(graph, kind)
    try:
        values = ids.cast(pa.string() if words else pa.int64())
    except pa.ArrowInvalid:
        listed = ids.drop_null().to_pylist()
        odd = next((value for value in listed if not re.fullmatch("-?[0-9]+", str(value))), None)
        why = f"ids of {kind!r} are numbers"
        if odd is None:
            odd, why = max(listed, key=lambda value: abs(int(value))), "it is too large"
        raise GraphError(f"{path}: no node has the id {odd!r}: {why}") from None
    if values.null_count:
        raise GraphError(f"{path}: {values.null_count:,} ids are missing")
    listed = values.to_pylist() if words else values.to_numpy()
    rows = graph.rows_of_type(kind)
    held = graph.node_ids.get(kind) or NodeIds(np.arange(rows.stop - rows.start))
    try:
        found: NDArray[np.int64] = held.find(listed) + rows.start
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from None
    return found


def _by_tabs(path: Path) -> bool:
    """Return whether tabs tell columns apart: those of `.tsv`, and of `.txt` whose first line has one."""
    if path.suffix != ".txt":
        return path.suffix == ".tsv"
    with open(path, "rb") as file:
        return b"\t" in file.readline(1 << 16)


def _read_table(path: Path, what: str) -> "pa.Table":
    """Return the table of a Parquet or CSV file; ids in text stay as they are written."""
    arrow = require("pyarrow", "data")
    try:
        if path.suffix in (".csv", ".txt", ".tsv"):
            csv = require("pyarrow.csv", "data")
            parsing = csv.ParseOptions(delimiter="\t" if _by_tabs(path) else ",")
            with reading(path):
                head = csv.open_csv(path, parse_options=parsing).schema.names
            texts = csv.ConvertOptions(
                column_types=dict.fromkeys(head, arrow.string()), strings_can_be_null=False
            )
            table = csv.read_csv(path, parse_options=parsing, convert_options=texts)
        else:
            table = require("pyarrow.parquet", "data").read_table(path)
    except MemoryError:  # Arrow's own is an ArrowException, too
        raise
    except (arrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise FormatError(f"{path}: not a Parquet or CSV file of {what} ({reason})") from None
    if not len(table):
        raise FormatError(
            f"{path}: has no row under its header ({', '.join(table.column_names)}); add {what}"
        )
    return table
