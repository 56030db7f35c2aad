"""The rows most often read, held near: a static cache in front of any store, as PaGraph's."""

import copy
import ctypes
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from weft import kernels
from weft.errors import InputError, RecipeError
from weft.kernels import gpu, native
from weft.kernels.buffers import reused
from weft.machine import free_memory
from weft.stores.base import FeatureRows, Store, stores
from weft.stores.link import reachable
from weft.stores.memory import MemoryStore
from weft.stores.mmap import MmapStore
from weft.stores.rankers import rankers
from weft.stores.storage import Storage, decode, encode, row_bytes

SHARE = 0.5
"""Of the free memory, what a capacity that is found by looking takes."""
_P, _L, _I = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_SIGNATURES: dict[str, list[type]] = {"weft_place_rows": [_P, _L, _P, _P, _L, _L, _L, _P, _I]}
_RESERVE = 1 << 30  # of a GPU: what a step needs beyond what the allocator holds now, as PaGraph leaves


@stores.add("cached")
class CachedStore(Store):
    """Hold the rows with the largest `scores` in memory, or on a GPU, and read the others from `store`.

    `scores` [N] come from a ranker: `out_degree`, `importance`, `frequency`. `capacity` is a number of rows,
    a share of them (a float up to 1), or "auto": what fits into half of the free memory, all if all fits.
    There is no replacement: which rows are read often does not change while a model trains. Without scores
    nothing is held until `hold` is given them.
    """

    over_stores: ClassVar[bool] = True
    caches: ClassVar[bool] = True
    on_workers: ClassVar[bool] = True
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")

    def __init__(
        self,
        store: Store,
        scores: Tensor | None,
        *,
        capacity: int | float | Literal["auto"] = "auto",
        device: torch.device | str = "cpu",
        storage: Storage | None = None,
        chunk: int = 65536,
    ) -> None:
        super().__init__(store.shape, store.dtype, device)
        self.store, self.storage, self.chunk = store, storage, chunk
        self.collective = store.collective
        self.writable = store.writable and not store.collective  # what other ranks write is not seen here
        self.capacity = self._rows(capacity)
        self._far: Tensor | None = None  # all rows, where a GPU reads those it does not hold by itself
        self._place_there: Tensor | None = None
        self.ranked = scores is not None
        self._keep(torch.zeros(0, dtype=torch.int64) if scores is None else self._best(scores))

    @classmethod
    def open(
        cls,
        rows: FeatureRows,
        *,
        path: str | Mapping[str, Any] | None = None,
        capacity: int | float | Literal["auto"] = "auto",
        ranker: str = "out_degree",
        storage: Storage | None = None,
    ) -> "CachedStore":
        """Return an empty cache before the file `path`, or before the graph's own x in the bits of `storage`.

        It holds `capacity` rows, a share of them, or what fits; of workers each holds rows of others.
        `ranker` is who chooses them; the cache is filled when its scores are known.
        """
        behind: Store
        if path is not None:
            behind = MmapStore.open(rows, path=path)
        elif isinstance(rows.x, Store):
            behind = rows.x
        else:  # in the bits of the cache, so that a run does not depend on what is held there
            behind = MemoryStore.open(rows, storage=storage)
        return cls(behind, None, capacity=capacity, storage=storage)

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuse a ranker that there is not, and a file in other bits than its own."""
        if "ranker" in options:
            rankers[options["ranker"]]
        if options.get("storage") is not None and options.get("path") is not None:
            raise RecipeError(
                "strategy.store.storage: rows of a file come in its bits, and a run would depend on which "
                "are cached; write the file in fewer, as weft.stores.MmapStore.create does, and leave it out"
            )

    @classmethod
    def as_read(
        cls, x: Tensor, *, path: Any = None, storage: Storage | None = None, **options: Any
    ) -> Tensor:
        """Return rows as the store behind gives them."""
        return x if path is not None else MemoryStore.as_read(x, storage=storage)

    def hold(self, scores: Tensor) -> None:
        """Hold the rows with the largest scores [N] from now on; on all ranks of a store that these share."""
        self.ranked = True
        self._keep(self._best(scores))

    def on(self, device: torch.device | str) -> "CachedStore":
        """Return the cache with its rows on a GPU, where `gather` then gives what it is asked for.

        Rows in plain memory behind it are pinned, and the GPU reads them itself.
        """
        made = copy.copy(self)
        made.device = torch.device(device)
        made.values = self.values.to(device)
        made.scale = None if self.scale is None else self.scale.to(device)
        behind = self.store
        plain = isinstance(behind, MemoryStore) and behind.values.is_cpu and behind.values.dtype == self.dtype
        if plain and self.scale is None and self.values.dtype == self.dtype and gpu.available():
            assert isinstance(behind, MemoryStore)
            made._far, made._place_there = reachable(behind.values), self.place.to(device)
        return made

    def gather(self, ids: Tensor) -> Tensor:
        """Return the rows of these ids, in their order; ids on a GPU the host neither sees nor counts."""
        if self._far is None or self._place_there is None or not ids.is_cuda:
            return super().gather(ids)
        from weft.kernels.triton.gather import gather_near  # where there is a GPU

        return gather_near(self.values, self._far, self._place_there, ids)

    @property
    def row_bytes(self) -> int:
        """The bytes of a row in the store behind."""
        return self.store.row_bytes

    def most(self, count: int) -> int:
        """Return the largest of a number over the ranks of the store behind."""
        return self.store.most(count)

    def close(self) -> None:
        """Close the store behind."""
        self.store.close()

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"capacity": self.capacity, "behind": self.store.describe()}

    def _gather(self, ids: Tensor) -> Tensor:
        rows = kernels.gather(self.place, ids)
        far = (rows < 0).nonzero().flatten()
        self.counters.add(hits=ids.numel() - far.numel())
        if not far.numel() and not self.store.collective:
            return self._near(rows)
        # A collective store is asked also for nothing: the other ranks wait for this one.
        before = self.store.counters.hits
        fetched = self.store.gather(ids[far]).to(self.device)
        self.counters.add(hits=self.store.counters.hits - before)  # rows of this rank are near, too
        if far.numel() == ids.numel():
            return fetched
        if self.scale is None and self.values.dtype == self.dtype and can_place(self.values):
            out = reused((ids.numel(), *self.shape[1:]), self.dtype)
            place_rows(self.values, out, rows=rows)
            place_rows(fetched, out, places=far)
            return out
        out = torch.empty((ids.numel(), *self.shape[1:]), dtype=self.dtype, device=self.device)
        near = (rows >= 0).nonzero().flatten()
        out[near.to(self.device)] = self._near(rows[near])
        out[far.to(self.device)] = fetched
        return out

    def _near(self, rows: Tensor) -> Tensor:
        rows = rows.to(self.device)
        scale = None if self.scale is None else self.scale[rows.long()]
        return decode(kernels.gather(self.values, rows), scale, self.dtype)

    def _write(self, ids: Tensor, rows: Tensor) -> None:
        self.store.write(ids, rows)
        near = torch.unique(ids[self.place[ids] >= 0])
        if near.numel():  # read back: of an id written twice the store knows what stayed
            kept, slots = encode(self.store.gather(near), self.storage), self.place[near].long()
            self.values[slots] = kept.values.to(self.device)
            if self.scale is not None and kept.scale is not None:
                self.scale[slots] = kept.scale.to(self.device)

    def _count(self, rows: int) -> None:
        self.counters.add(rows=rows)
        self.counters.bytes = self.store.counters.bytes - self._filled

    def _best(self, scores: Tensor) -> Tensor:
        if tuple(scores.shape) != (self.num_rows,):
            raise InputError(f"expected a score for each of {self.num_rows:,} rows, got {list(scores.shape)}")
        return best(self.wanted(scores), self.capacity)

    def wanted(self, scores: Tensor) -> Tensor:
        """Return the scores [N] with rows of this rank last: they are near already."""
        local = self.store.local_ids
        return scores if local is None else scores.index_fill(0, local, -1.0)

    def _keep(self, held: Tensor) -> None:
        self.place = torch.full((self.num_rows,), -1, dtype=torch.int32)  # row of the cache, or -1
        self.place[held] = torch.arange(len(held), dtype=torch.int32)
        self.values, self.scale = self._fill(held, self.chunk)

    def _fill(self, held: Tensor, chunk: int) -> tuple[Tensor, Tensor | None]:
        calls = self.most(-(-len(held) // chunk))  # as many on every rank, some with no rows
        first = encode(self.store.gather(held[:0]), self.storage)
        values = first.values.new_empty((len(held), *self.shape[1:]), device=self.device)
        scale = None if first.scale is None else first.scale.new_empty(len(held), device=self.device)
        for start in range(0, calls * chunk, chunk):
            kept = encode(self.store.gather(held[start : start + chunk]), self.storage)
            values[start : start + chunk] = kept.values
            if scale is not None and kept.scale is not None:
                scale[start : start + chunk] = kept.scale
        self._filled = self.store.counters.bytes - self.counters.bytes
        return values, scale

    def _rows(self, capacity: int | float | str) -> int:
        if capacity == "auto":
            empty = torch.empty((1, *self.shape[1:]), dtype=self.dtype)
            size = row_bytes(*encode(empty.zero_(), self.storage))
            return min(self.num_rows, int(SHARE * free_bytes(self.device)) // max(size, 1))
        share = isinstance(capacity, float)
        if isinstance(capacity, str | bool) or capacity < 0 or (share and capacity > 1):
            raise InputError(
                f"capacity: expected a number of rows, a share up to 1.0, or 'auto', got {capacity!r}"
            )
        return min(self.num_rows, round(capacity * self.num_rows) if share else int(capacity))


def can_place(x: Tensor) -> bool:
    """Return whether `place_rows` can copy from this matrix."""
    return x.is_cpu and hasattr(native.library(), "weft_place_rows")


def place_rows(x: Tensor, out: Tensor, *, rows: Tensor | None = None, places: Tensor | None = None) -> None:
    """Copy x[rows[i]] to out[places[i]] natively; a negative row is left out, None counts 0, 1, …"""
    native.declare(_SIGNATURES)
    count = rows.numel() if rows is not None else len(x)
    size = math.prod(x.shape[1:]) * x.element_size()
    arguments = (x, len(x), rows, places, len(out), count, size, out, native.threads())
    native.call("weft_place_rows", *arguments, what="rows of a cache")


def best(scores: Tensor, count: int) -> Tensor:
    """Return the ids of the `count` largest scores, ascending; of equal scores the smaller ids."""
    order = torch.sort(scores.cpu(), descending=True, stable=True).indices
    return order[:count].sort().values


def free_bytes(device: torch.device | str = "cpu") -> int:
    """Return the memory that can be taken: of the GPU less a reserve, or of the machine and its container."""
    device = torch.device(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return max(0, free + unused - _RESERVE)
    return free_memory()
