"""Batches from record files: each worker reads its own share of the records, threads read ahead of training.

A worker's records are a range of all, so it opens only the files that the range lies in. Its order in an
epoch is a function of (seed, epoch): files in a new order, and records shuffled in windows of `buffer`, two
of which are in memory. Every worker takes the same share of its records in each step, so all have as many
steps, and the state of a loader is the epoch and the step.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.draw import Stream, fold, permutation
from weft.errors import FormatError, InputError
from weft.format import (
    MANIFEST,
    MESSAGES,
    RECORDS,
    checked_bytes,
    expect_no_link,
    manifest_checksum,
    read_manifest,
)
from weft.graph.graph import Graph
from weft.graph.node_data import COUNTS_SHAPE
from weft.reading.damage import reading
from weft.reading.json_values import Each, Maybe, WholeNumber, expect_shape
from weft.registry import require
from weft.samplers.base import Batch, Sampler
from weft.samplers.loader import Loader
from weft.strategies.records.batch_blocks import EDGES, Records, RecordSource, Values, batch_of

_META = {
    "fanout": [WholeNumber(-1)],
    "splits": Each(WholeNumber()),
    "node_offsets": [WholeNumber()],
    "node_types": [str],
    "edge_types": [[str]],
    "parts": [{"file": str, "records": WholeNumber()}],
    "num_edges": Maybe(WholeNumber()),
    "values": Maybe([{"type": str, "column": str, "width": WholeNumber(), "sparse": bool}]),
    **COUNTS_SHAPE,
    "tell_y": Maybe(bool),
    "target_type": Maybe(str),
    "edge_data": Maybe(Each([WholeNumber()])),
    "graph": Maybe(str),
    "mark": Maybe(str),
    "messages": Maybe(str),
    "temporal": Maybe(bool),
}

Window = tuple[Records, NDArray[np.int64]]
"""Records that were read together, and the order in which they are used."""


@dataclass(frozen=True, eq=False)
class RecordFiles:
    """The files of one folder, and how they were made."""

    folder: Path
    manifest: dict[str, Any]
    entries: dict[str, Any]
    """The size and checksum of each file."""
    mark: str = ""
    """The checksum of the manifest, which holds those of all files."""

    @classmethod
    def open(cls, folder: str | Path) -> "RecordFiles":
        """Return the files of a folder that `weft flatten` wrote."""
        manifest = read_manifest(Path(folder), RECORDS)
        expect_shape(manifest["meta"], _META, Path(folder) / RECORDS)
        return cls(Path(folder), manifest["meta"], manifest["files"], manifest["checksum"])

    @property
    def fanout(self) -> list[int]:
        """Edges drawn a row in each hop."""
        return list(self.manifest["fanout"])

    @property
    def sizes(self) -> list[int]:
        """The records of each file."""
        return [int(part["records"]) for part in self.manifest["parts"]]

    @property
    def splits(self) -> dict[str, int]:
        """How many records each of the targets has, one after the other."""
        return dict(self.manifest["splits"])

    @property
    def tell_y(self) -> bool:
        """Whether the records tell y of their targets; files of before tell of how many kinds it is."""
        tells: bool = self.manifest.get("tell_y", any(self.manifest.get(name) for name in COUNTS_SHAPE))
        return tells

    def range_of(self, split: str, rank: int = 0, workers: int = 1) -> tuple[int, int]:
        """Return the records of a split that are one worker's share: from and to which of all."""
        first, count = 0, 0
        for name, count in self.splits.items():
            if name == split:
                break
            first += count
        return first + count * rank // workers, first + count * (rank + 1) // workers

    def lists(self) -> list[str]:
        """Return the columns that stand for the graph where the records hold all that training reads."""
        manifest = self.manifest
        weight = ["degree.weight"] if "weight" in manifest["edge_data"] else []
        kinds = ["edge.type", "degree.relations", "degree.relation", "degree.edges"]
        return ["degree", *weight, *(kinds if manifest["typed_edges"] else [])] + [
            f"edge.{name}" for name in manifest["edge_data"]
        ]

    def values(self) -> list[Values]:
        """Return the features that the records hold; none where they lie in the graph."""
        entries = self.manifest.get("values") or []
        if any(entry["sparse"] for entry in entries):
            return []
        return [Values(entry["type"], entry["column"], int(entry["width"])) for entry in entries]

    def check_kind(self) -> None:
        """Refuse records of other targets than training nodes, or of edges until a time."""
        manifest = self.manifest
        if manifest.get("temporal"):
            raise InputError(
                f"{self.folder}: records of edges until a time; training from them is not supported"
            )
        if "train" not in self.splits:
            raise InputError(
                f"{self.folder} holds records of {manifest['targets']!r}; training needs those of the "
                "training nodes: weft flatten GRAPH --targets train"
            )

    @property
    def graph_path(self) -> Path:
        """The folder of the graph that was flattened: of pairs that of their messages, among the records."""
        if "messages" not in self.manifest:
            return Path(str(self.manifest.get("graph", "")))
        expect_no_link(self.folder / MESSAGES)
        return self.folder / MESSAGES

    def check(self, graph: Graph, count: int) -> None:
        """Refuse records that are not of this graph's training nodes, or pairs."""
        self.check_kind()
        manifest = self.manifest
        kinds = [list(kind) for kind in graph.edge_types]
        edges = manifest.get("num_edges", graph.num_edges)
        same = list(manifest["node_offsets"]) == list(graph.node_offsets) and manifest["edge_types"] == kinds
        if not same or edges != graph.num_edges or not self._has_the_edges_of(graph):
            raise InputError(
                f"{self.folder}: the records are of another graph than the one trained on, which may have "
                "got other directions, inverse relations or self loops when it was opened: save that graph "
                "(graph.add_self_loops().save(...)), flatten it and train on it"
            )
        trained = self.splits["train"]
        if trained != count:
            raise InputError(
                f"{self.folder} holds {trained:,} records, the graph has {count:,} targets to train on; "
                "flatten it again"
            )

    def _has_the_edges_of(self, graph: Graph) -> bool:
        """Return whether the graph that was flattened, as far as it is still there, has the same edges."""
        path = self.graph_path
        if not (path / MANIFEST).is_file():
            return True
        if self.manifest.get("mark") not in (None, manifest_checksum(path)):
            raise InputError(
                f"{self.folder}: {path} was written anew since it was flattened; flatten it again"
            )
        graph_here = Graph.load(path, verify=False)
        return bool((graph_here.indptr == graph.indptr).all() and (graph_here.indices == graph.indices).all())

    def read(self, part: int, start: int, stop: int, more: Sequence[str] = ()) -> Any:
        """Return some records of a file as a table; the file is read once, against its checksum.

        `more` names columns beside targets, edges and features.
        """
        arrow, parquet = require("pyarrow", "data"), require("pyarrow.parquet", "data")
        path = self._path(part)
        with reading(path):
            file = parquet.ParquetFile(arrow.BufferReader(self._bytes(part)))
            known = set(file.schema_arrow.names)
            columns = ["target", *EDGES, *(["scale"] if "scale" in known else [])]
            if self.values():
                columns += ["nodes", *(each.column for each in self.values())]
            table = file.read(columns=[*columns, *more])
        if table.num_rows != self.sizes[part]:
            raise FormatError(f"{path}: {table.num_rows:,} records, the manifest says {self.sizes[part]:,}")
        return table.slice(start, stop - start).combine_chunks()

    def known(self, low: int, high: int) -> NDArray[Any]:
        """Return what is known of the targets of a range of all records, one after the other."""
        arrow, parquet = require("pyarrow", "data"), require("pyarrow.parquet", "data")
        columns: list[NDArray[Any]] = []
        for part, start, stop in _segments(self.sizes, low, high):
            file = arrow.BufferReader(self._bytes(part))
            with reading(self._path(part)):
                column = parquet.read_table(file, columns=["y"]).column("y").slice(start, stop - start)
                column = column.combine_chunks()
                plain = column.flatten() if hasattr(column.type, "value_type") else column
                columns.append(plain.to_numpy())
        return np.concatenate(columns) if columns else np.zeros(0, np.int64)

    def _path(self, part: int) -> Path:
        return self.folder / str(self.manifest["parts"][part]["file"])

    def _bytes(self, part: int) -> bytes:
        name, first = self.manifest["parts"][part]["file"], sum(self.sizes[:part])
        try:
            return checked_bytes(self.folder, name, self.entries)
        except FormatError as error:
            last = first + self.sizes[part] - 1
            raise FormatError(
                f"{error}: records {first:,} … {last:,} are in it; flatten the graph again"
            ) from None


class RecordSampler(Sampler):
    """What a loader asks for its graph and seed; the draws were made when the records were."""

    def sample(self, seeds: Any, epoch: int = 0, step: int = 0) -> Batch:
        """Refuse: neighbourhoods are read, by the loader."""
        raise InputError("records are read in their order, see RecordLoader")


class RecordLoader(Loader):
    """Iterate over batches of one worker's records; `batch_size` counts the records of all workers.

    `split` names the targets, by default the first that the files have.
    """

    def __init__(
        self,
        files: RecordFiles,
        source: RecordSource,
        *,
        split: str | None = None,
        shuffle: bool = True,
        seed: int = 0,
        batch_size: int = 1024,
        buffer: int = 16384,
        threads: int = 2,
        rank: int = 0,
        workers: int = 1,
    ) -> None:
        sampler = RecordSampler(source.graph, seed=seed)
        super().__init__(sampler, torch.zeros(0, dtype=torch.int64), batch_size=batch_size, threads=threads)
        self.files, self.buffer = files, buffer
        self.rank, self.workers = rank, workers
        self.shuffled = shuffle
        split = next(iter(files.splits)) if split is None else split
        self.num_records = files.splits[split]
        bounds = [files.range_of(split, index, workers) for index in range(workers)]
        self.shares = [high - low for low, high in bounds]
        """The records of each worker."""
        self.segments = _segments(files.sizes, *bounds[rank])
        self.source, self.more = source, source.columns
        self._windows: dict[tuple[int, int], Window] = {}
        self._reading = threading.Lock()

    def __len__(self) -> int:
        """Return the number of steps of an epoch, the same on all workers."""
        return -(-self.num_records // self.batch_size)

    def count(self, epoch: int, step: int) -> int:
        """Return how many records a step has on all workers together."""
        return sum(self._end(share, step + 1) - self._end(share, step) for share in self.shares)

    def seeds_of(self, epoch: int, step: int) -> Tensor:
        """Return the own targets of a step."""
        rows = self._rows(epoch, step)
        return torch.from_numpy(np.concatenate([records.target[at] for records, at in rows]))

    def batch(self, epoch: int, step: int) -> Batch:
        """Return the batch of a step: the neighbourhoods of its targets, each node once."""
        rows = self._rows(epoch, step)
        if len(self.graph.node_types) > 1:
            rows = _sorted(rows)
        return batch_of(self.source, rows, len(self.files.fanout), epoch=epoch, step=step)

    def _end(self, share: int, step: int) -> int:
        """Return how many of a worker's records are used after so many steps."""
        return min(share, step * self.batch_size * share // max(self.num_records, 1))

    def _rows(self, epoch: int, step: int) -> list[Window]:
        """Return the own records of a step: windows, and rows in each."""
        share = self.shares[self.rank]
        first, last = self._end(share, step), self._end(share, step + 1)
        parts = []
        for number in range(first // self.buffer, max(last - 1, first) // self.buffer + 1):
            window, order = self._window(epoch, number)
            start = number * self.buffer
            parts.append((window, order[max(first - start, 0) : max(last - start, 0)]))
        return parts

    def _window(self, epoch: int, number: int) -> Window:
        """Return a window of the epoch's order, read by whoever asks first; the last two asked for stay."""
        key = (epoch, number)
        with self._reading:
            window = self._windows.pop(key, None)
            if window is None:
                records = self._read(epoch, number)
                drawn = fold(self.sampler.seed, Stream.SHUFFLE, epoch, number, self._lane())
                order = permutation(drawn, len(records)) if self.shuffled else np.arange(len(records))
                window = records, order
            self._windows[key] = window  # the last in the dictionary is the last that was asked for
            for old in list(self._windows)[:-2]:
                del self._windows[old]
            return window

    def _read(self, epoch: int, number: int) -> Records:
        arrow = require("pyarrow", "data")
        wanted = _cut(self._files_of(epoch), number * self.buffer, (number + 1) * self.buffer)
        tables = [self.files.read(*segment, self.more) for segment in wanted]
        tables = tables or [self.files.read(0, 0, 0, self.more)]
        return Records.of(arrow.concat_tables(tables), self.files.values(), self.more)

    def _files_of(self, epoch: int) -> list[tuple[int, int, int]]:
        """Return the segments in the order of an epoch; where all fit in one window that shuffles enough."""
        if self.shares[self.rank] <= self.buffer or not self.shuffled:
            return self.segments
        key = fold(self.sampler.seed, Stream.SHUFFLE, epoch, 0, self._lane() + self.workers + 1)
        return [self.segments[number] for number in permutation(key, len(self.segments))]

    def _lane(self) -> int:
        """Return what tells workers' draws apart; a worker alone draws as loaders of one process do."""
        return 0 if self.workers == 1 else self.rank + 1


def _segments(sizes: list[int], low: int, high: int) -> list[tuple[int, int, int]]:
    """Return (file, first record, last record) of a range of all records."""
    segments, before = [], 0
    for part, size in enumerate(sizes):
        start, stop = max(low - before, 0), min(high - before, size)
        if start < stop:
            segments.append((part, start, stop))
        before += size
    return segments


def _cut(segments: list[tuple[int, int, int]], low: int, high: int) -> list[tuple[int, int, int]]:
    """Return the segments of a range of what they hold, in their order."""
    cuts, before = [], 0
    for part, first, last in segments:
        start, stop = max(low - before, 0), min(high - before, last - first)
        if start < stop:
            cuts.append((part, first + start, first + stop))
        before += last - first
    return cuts


def _sorted(rows: list[Window]) -> list[Window]:
    """Return the rows by target, which is by type; of several windows, in as many runs as that takes."""
    windows = np.concatenate([np.full(len(at), index) for index, (_, at) in enumerate(rows)])
    places = np.concatenate([at for _, at in rows])
    target = np.concatenate([records.target[at] for records, at in rows])
    order = np.argsort(target, kind="stable")
    windows, places = windows[order], places[order]
    cuts = [0, *(np.flatnonzero(windows[1:] != windows[:-1]) + 1).tolist(), len(windows)]
    runs = [(rows[int(windows[low])][0], places[low:high]) for low, high in pairwise(cuts) if low < high]
    return runs or rows
