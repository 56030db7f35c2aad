"""The user's own node ids: whole numbers or strings, kept beside the rows and given back in every output.

On disk they are Parquet. Pyarrow is loaded only when ids are written or read.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import FormatError, GraphError, MissingExtra

_COLUMN = "id"


class NodeIds:
    """The ids of the nodes of one type, in row order.

    >>> ids = NodeIds(["007", "7", "Ωmega"])
    >>> ids.find(["7", "007"]).tolist()
    [1, 0]
    """

    def __init__(self, values: Any, num_nodes: int | None = None, node_type: str = "node") -> None:
        self.values = _as_array(values, node_type)
        if num_nodes is not None and len(self.values) != num_nodes:
            raise GraphError(f"node_ids of {node_type!r}: {len(self.values):,} ids for {num_nodes:,} nodes")
        self._order = np.argsort(self.values, kind="stable")
        ordered = self.values[self._order]
        repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
        if len(repeated):
            rows = self._order[repeated[0]], self._order[repeated[0] + 1]
            found = f"id {ordered[repeated[0]].item()!r} stands at rows {rows[0]:,} and {rows[1]:,}"
            raise GraphError(f"node_ids of {node_type!r} must differ: {found} ({len(repeated):,} repeated)")

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeIds) and bool(np.array_equal(self.values, other.values))

    __hash__ = None  # type: ignore[assignment]

    def find(self, ids: Any) -> NDArray[np.int64]:
        """Return the row of each id; an unknown one is named."""
        wanted = _as_array(ids, "node")
        if wanted.dtype.kind != self.values.dtype.kind:
            raise GraphError(f"ids are {_kind(self.values)}s, asked for {_kind(wanted)}s")
        if len(wanted) and not len(self.values):
            raise GraphError(f"no node has the id {wanted[0].item()!r} (there are no nodes)")
        ordered = self.values[self._order]
        place = np.searchsorted(ordered, wanted).clip(max=len(ordered) - 1)
        unknown = np.flatnonzero(ordered[place] != wanted)
        if len(unknown):
            raise GraphError(f"no node has the id {wanted[unknown[0]].item()!r} ({len(unknown):,} unknown)")
        rows: NDArray[np.int64] = self._order[place].astype(np.int64)
        return rows


def to_parquet(ids: NodeIds) -> bytes:
    """Return the ids as the bytes of a Parquet file with one column, `id`."""
    arrow, parquet = _arrow()
    table = arrow.table({_COLUMN: arrow.array(ids.values)})
    sink = arrow.BufferOutputStream()
    parquet.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())


def from_parquet(data: bytes, where: str) -> NodeIds:
    """Return the ids that `to_parquet` wrote; `where` names the file in errors."""
    arrow, parquet = _arrow()
    try:
        # Threads gain nothing on one column, and there may be no room for any.
        table = parquet.read_table(arrow.BufferReader(data), use_threads=False, pre_buffer=False)
        column = table.column(_COLUMN)
    except MemoryError:  # Arrow's own is an ArrowException, too
        raise
    except (arrow.ArrowException, KeyError) as error:
        raise FormatError(f"{where}: not a Parquet file of node ids ({error})") from error
    return NodeIds(column.to_pylist() if arrow.types.is_string(column.type) else column.to_numpy())


def _as_array(values: Any, node_type: str) -> NDArray[Any]:
    if isinstance(values, NodeIds):
        return values.values
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    if not isinstance(values, np.ndarray) or values.dtype.hasobject:
        values = list(values)
        # numpy would turn [1, "a"] into strings and [1, None] into objects without a word
        kinds = {bool: "bool"} | {type(value): type(value).__name__ for value in values}
        used = {kinds[type(value)] for value in values}
        if not (used <= {"str", "str_"} or all(name.startswith(("int", "uint")) for name in used)):
            found = ", ".join(sorted(used))
            raise GraphError(
                f"node_ids of {node_type!r} must be all strings or all whole numbers, got {found}"
            )
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        shape = tuple(array.shape)
        raise GraphError(
            f"node_ids of {node_type!r} must be strings or whole numbers, got {array.dtype} {shape}"
        )
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        raise GraphError(
            f"node_ids of {node_type!r}: {int(array.max()):,} is more than a 64-bit integer can hold"
        )
    return array if array.dtype.kind == "U" else array.astype(np.int64)


def _kind(values: NDArray[Any]) -> str:
    return "string" if values.dtype.kind == "U" else "number"


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("node ids are stored as Parquet: install it with: pip install pyarrow") from error
    return pyarrow, pyarrow.parquet
