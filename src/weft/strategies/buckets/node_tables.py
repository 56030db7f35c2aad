"""Who has the rows of nodes: tables in files, of which some partitions are in memory."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from weft.graph.views import GraphView
from weft.layers.no_layers import EMBEDDINGS
from weft.strategies.buckets.bucket_edges import EdgeFiles, write_edges
from weft.strategies.buckets.buffer import Buffer
from weft.strategies.buckets.division import Division
from weft.strategies.buckets.orders import Visit
from weft.strategies.buckets.partition_files import PartitionFiles
from weft.strategies.buckets.run_tables import Tables, folder_of
from weft.strategies.layout import Layout
from weft.strategies.learned import LearnedTables
from weft.strategies.shared import Shared


class NodeTables(Layout):
    """Rows of nodes in tables, which are opened when asked for first: the run's folder is there then."""

    state_of_run: ClassVar[bool] = True

    def __init__(
        self,
        shared: Shared,
        graph: GraphView,
        division: Division,
        *,
        buffer: int,
        width: int,
        scale: float,
        run: Path | None,
    ) -> None:
        super().__init__(shared)
        self.graph, self.division = graph, division
        self.width, self._scale = width, scale
        self.dtype = torch.float32
        """That of the rows: the model's."""
        self.capacity, self._home = buffer, run
        self._visits = 0
        self._opened = False
        self._begun: tuple[float, int, float, int, int] = (0.0, 0, 0.0, 0, 0)
        self._epoch: dict[str, Any] = {}

    @cached_property
    def tables(self) -> Tables:
        """The rows."""
        group, seed = self.shared.group, int(self.shared.clock[0])
        folder, self._own = folder_of(self._home, group)
        folder.mkdir(parents=True, exist_ok=True)
        files = PartitionFiles(
            folder, self.division, self.width, seed=seed, scale=self._scale, dtype=self.dtype
        )
        common = self.division.common is not None  # in memory all the time, beside the others
        buffer = Buffer(files, self.capacity + common, device=self.shared.device)
        self._opened = True
        return Tables(files, buffer, group)

    @cached_property
    def edges(self) -> EdgeFiles:
        """The training pairs, by bucket."""
        pairs, folder = self.shared.task.pairs["train"], self.tables.files.folder / "edges"
        types = self.graph.edge_types
        self.shared.group.prepare(
            lambda: write_edges(folder, pairs, self.division, types), told="sorting edges"
        )
        return EdgeFiles(folder, self.division)

    def next_version(self) -> int:
        """Return the number of the round that is trained now, since the run began."""
        self._visits += 1
        return self._visits

    @property
    def trained_visits(self) -> int:
        """How many versions there were before this step."""
        return self._visits

    def passed(self, count: int) -> None:
        """Note that a step made so many versions, whoever trained them."""
        self._visits += count

    def note(self, visits: Sequence[Visit], version: int) -> None:
        """Note that partitions of a round are new versions, whoever trained them."""
        for visit in visits:
            for one in visit.partitions:
                self.tables.buffer.versions[one] = version

    def begin_epoch(self, visits: Sequence[Sequence[int]]) -> None:
        """Plan the visits that follow, and count anew."""
        held = self.tables
        held.buffer.begin(visits)
        self._begun = (time.perf_counter(), held.buffer.swaps, held.buffer.waited, *self._bytes())

    def end_epoch(self, rounds: Sequence[Sequence[Visit]]) -> None:
        """Have every worker find all rows in files, and note what the epoch took."""
        if self.shared.group.size > 1:
            self.tables.buffer.flush()
            self.shared.group.barrier()
        begun, swaps, waited, read, written = self._begun
        buffer, (now_read, now_written) = self.tables.buffer, self._bytes()
        seconds = max(time.perf_counter() - begun, 1e-9)
        self._epoch = {
            "swaps": buffer.swaps - swaps,
            "bytes_read": now_read - read,
            "bytes_written": now_written - written,
            "disk_wait_share": (buffer.waited - waited) / seconds,
            "visits": [[list(visit.partitions) for visit in visits] for visits in rounds],
        }

    def tell(self, fields: Mapping[str, Any]) -> None:
        """Have the last epoch tell more."""
        self._epoch |= fields

    def told(self) -> dict[str, Any]:
        """Return what the last epoch took."""
        return {"buckets": self._epoch} if self._epoch else {}

    def finish(self) -> None:
        """Write the rows of all nodes, in the order of ids, into the run's folder.

        Without one the first worker removes the tables of all: it waits until they were read.
        """
        if self._home is None:
            self.shared.group.barrier()
        else:
            folder = self._home / EMBEDDINGS
            self.shared.group.prepare(lambda: self.tables.export(folder), told="writing rows")
            self.shared.group.prepare(self.tables.tidy)

    def target_rows(self) -> Tensor:
        """Return the rows of all nodes of the target type."""
        graph = self.graph
        place = graph.node_types.index(graph.target_type)
        ids = torch.arange(graph.node_offsets[place], graph.node_offsets[place + 1])
        return self.tables.rows_of(ids).to(self.shared.device)

    def gathered(self, rows: Tensor) -> Tensor:
        """Return the rows: `target_rows` gives those of all workers."""
        return rows

    def rows_of(self, h: Tensor, ids: Tensor) -> Tensor:
        """Return the rows of any nodes, where the model is."""
        return self.tables.rows_of(ids).to(self.shared.device)

    def together(self) -> Iterator[Tensor]:
        """Give the nodes of each partition, rising."""
        for partition in range(self.division.partitions):
            yield torch.from_numpy(np.sort(self.division.ids(partition)))

    def state(self) -> dict[str, Tensor]:
        """Return the versions of partitions, which files hold."""
        return {**self.tables.state(), "visits": torch.tensor(self._visits)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._visits = int(state["visits"])
        self.tables.load_state(state)
        self.shared.group.prepare(self.tables.tidy)

    def close(self) -> None:
        """End the thread, and remove tables that no run keeps."""
        if self._opened:
            self.tables.buffer.close()
            if self._own is not None:
                self._own.cleanup()

    def _bytes(self) -> tuple[int, int]:
        files = self.tables.files
        return files.bytes_read + self.edges.bytes_read, files.bytes_written


class PartitionedRows(LearnedTables):
    """The rows of a run as trainers ask for them: they are no tables of the model's."""

    def __init__(self, layout: NodeTables) -> None:
        super().__init__()
        self._layout = layout

    @property
    def size(self) -> int:
        """The numbers of all rows."""
        return int(self._layout.division.offsets[-1]) * self._layout.width

    def keep_best(self) -> None:
        self._layout.tables.keep_best()

    def restore_best(self) -> None:
        self._layout.tables.restore_best()
