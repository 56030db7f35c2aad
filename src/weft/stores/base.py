"""What a store is: rows by id, wherever they lie, what it can do, and the count of what was read."""

import threading
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.errors import GraphError, InputError, RecipeError
from weft.graph.source import RowSource
from weft.graph.sparse import Features, SparseFeatures
from weft.registry import Registry

stores: Registry[type["Store"]] = Registry("store", "weft.stores")


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """The features of one node type as a run has them: what a store is opened for."""

    x: Features | RowSource | None
    """[n, ...] those of this process; None where the graph has none, and a file is to bring them."""
    num_rows: int
    """Nodes of the type, on all ranks."""
    node_ids: Tensor | None = None
    """[n] int64 which of the type's nodes the rows of x are, ascending; None: all of them."""
    group: Group = field(default_factory=Group.alone)
    """The ranks that read together; one process is a group of one."""
    node_type: str | None = None
    """Its name, where the graph has several types."""

    def dense(self) -> Tensor:
        """Return x as a matrix, or say why it is none."""
        if isinstance(self.x, Tensor):
            return self.x
        kind = "none" if self.x is None else type(self.x).__name__
        sparse = isinstance(self.x, SparseFeatures)
        hint = "sparse features need no store" if sparse else "name a file: store.path"
        hint = "it is one already" if isinstance(self.x, RowSource) else hint
        raise GraphError(f"a store of the graph's own x needs a dense matrix, got {kind}; {hint}")

    @property
    def dtype(self) -> torch.dtype | None:
        """The type that features are computed with; None where the graph has none to tell."""
        return self.x.dtype if isinstance(self.x, Tensor | RowSource) else None

    def option(self, key: str, value: Any) -> Any:
        """Return the value of an option that differs by node type: of a table the entry of this type."""
        where = f"strategy.store.{key}"
        if isinstance(value, Mapping):
            named = (
                value if self.node_type is not None or len(value) != 1 else {None: next(iter(value.values()))}
            )
            if self.node_type not in named:
                raise RecipeError(f"{where}: nothing for node type {self.node_type!r}; name it in the table")
            return named[self.node_type]
        if self.node_type is not None:
            raise RecipeError(
                f"{where}: the graph has several node types; give a table, "
                f'{key} = {{{self.node_type} = "{value}"}}'
            )
        return value


class Counters:
    """What was asked of a store since it was made. Threads add to it at the same time."""

    def __init__(self) -> None:
        self.rows = 0
        """Rows asked for."""
        self.hits = 0
        """Of these, rows found nearer than where the store's rows lie: in a cache, or on this rank."""
        self.bytes = 0
        """Bytes read from where they lie."""
        self._lock = threading.Lock()

    def add(self, *, rows: int = 0, hits: int = 0, bytes: int = 0) -> None:
        """Count one more read."""
        with self._lock:
            self.rows += rows
            self.hits += hits
            self.bytes += bytes

    @property
    def hit_rate(self) -> float:
        """The share of rows found near; 0 where none were asked for."""
        return self.hits / self.rows if self.rows else 0.0

    def to_dict(self) -> dict[str, float]:
        """Return the counts for an event or a report."""
        return {"rows": self.rows, "hits": self.hits, "bytes": self.bytes, "hit_rate": self.hit_rate}

    def __repr__(self) -> str:
        return f"Counters(rows={self.rows:,}, hits={self.hits:,}, bytes={self.bytes:,})"


class Store(RowSource):
    """Rows by id. `gather` may be called by any thread; that of a collective store by all ranks together.

    A collective store brings rows from other ranks: every rank calls, in the same order, also with no ids.
    What a store can do stands on its class, where checks, messages and the reference of recipes read it.
    """

    by_recipe: ClassVar[bool] = True
    """Whether a recipe may name it; a strategy makes the others for itself."""
    on_workers: ClassVar[bool] = False
    """Whether `open` serves several ranks, of which each has rows of its own."""
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    """Where `gather` can give rows; on others than the CPU after `on(device)`."""
    over_stores: ClassVar[bool] = False
    """Whether `open` takes rows that are a store already."""
    caches: ClassVar[bool] = False
    """Whether it holds some rows of another store, those that batches read most often."""
    writable: bool = False
    """Whether `write` is allowed."""
    collective: bool = False
    """Whether a call is one of all ranks of a group."""

    def __init__(self, shape: Any, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
        self.shape = torch.Size(shape)
        self.dtype = dtype
        self.device = torch.device(device)
        self.counters = Counters()

    @classmethod
    def open(cls, *rows: Any, **options: Any) -> "Store":
        """Return the store for the features of a run, `open(rows: FeatureRows, *, …)`.

        Keyword arguments are the options of a recipe. A store without an `open` of its own is made of the
        rows in memory, by its constructor, and has the options of that.
        """
        make: Any = cls
        made: Store = make(rows[0].dense(), **options)
        return made

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuse options that do not go together, before anything is opened."""

    @classmethod
    def as_read(cls, *x: Any, **options: Any) -> Tensor:
        """Return rows of the graph's own x as a store with these options gives them, `as_read(x, *, …)`."""
        rows: Tensor = x[0]
        return rows

    @property
    def local_ids(self) -> Tensor | None:
        """Of rows that ranks own, the ids of those that lie here; None where all are equally far."""
        return None

    def gather(self, ids: Tensor) -> Tensor:
        ids = self.checked(ids)
        out = self._gather(ids)
        self._count(ids.numel())
        return out

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Replace the rows of these ids; of an id given twice the last one stays."""
        if not self.writable:
            raise InputError(f"{self.describe()['store']}: this store is for reading only")
        ids = self.checked(ids)
        if tuple(rows.shape) != (ids.numel(), *self.shape[1:]):
            expected = [ids.numel(), *self.shape[1:]]
            raise GraphError(f"expected rows of shape {expected} to write, got {list(rows.shape)}")
        self._write(ids, rows.detach())

    def describe(self) -> dict[str, Any]:
        """Return what the store is, for the record of a run."""
        name = next((name for name in stores.names() if stores[name] is type(self)), type(self).__name__)
        dtype = str(self.dtype).removeprefix("torch.")
        return {"store": name, "shape": list(self.shape), "dtype": dtype, "row_bytes": self.row_bytes}

    def most(self, count: int) -> int:
        """Return the largest of a number over the ranks that call together; all of them call."""
        return count

    def close(self) -> None:
        """Give back what the store holds. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @property
    def row_bytes(self) -> int:
        """The bytes of one row where it lies."""
        return self.shape[1:].numel() * self.dtype.itemsize

    def checked(self, ids: Any) -> Tensor:
        """Return ids as [n] int64 in this store's rows, or say which is not."""
        numbers = torch.as_tensor(ids)
        if numbers.dim() != 1 or numbers.is_floating_point() or numbers.dtype == torch.bool:
            raise GraphError(f"expected ids [n] of rows, got {numbers.dtype} of shape {list(numbers.shape)}")
        numbers = numbers.to("cpu", torch.int64).contiguous()
        if numbers.numel():
            # Checked before a read: a wrong id of a mapped or shared file would be a segmentation fault, not
            # an error.
            least, most = numbers.aminmax()
            if int(least) < 0 or int(most) >= self.num_rows:
                wrong = int(least) if int(least) < 0 else int(most)
                raise GraphError(f"row {wrong:,} asked for, the store has {self.num_rows:,}: 0 … n - 1")
        return numbers

    @abstractmethod
    def _gather(self, ids: Tensor) -> Tensor:
        """Return the rows of checked ids."""

    def _write(self, ids: Tensor, rows: Tensor) -> None:
        """Replace the rows of checked ids."""
        raise NotImplementedError

    def _count(self, rows: int) -> None:
        self.counters.add(rows=rows, bytes=rows * self.row_bytes)

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{type(self).__name__}({list(self.shape)}, {dtype})"
