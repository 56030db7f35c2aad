"""The learned rows of a run: partitions in memory and in files, the best ones, and what a checkpoint has."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from weft.comm.group import Group
from weft.format import ArrayFile, new_directory, seal_directory
from weft.strategies.buckets.buffer import Buffer
from weft.strategies.buckets.partition_files import PartitionFiles

VERSIONS, BEST = "versions", "best_versions"
_PIECE = 1 << 22
"""Numbers of rows that are copied at a time."""


class Tables:
    """Rows of all nodes, by id. `buffer` holds those that are trained now, `files` all others."""

    def __init__(self, files: PartitionFiles, buffer: Buffer, group: Group) -> None:
        self.files, self.buffer, self.group = files, buffer, group
        self.best: list[int] | None = None
        self._kept: list[list[int]] = []
        """The versions of the last two checkpoints: of the older one until the newer is written."""

    def rows_of(self, ids: Tensor) -> Tensor:
        """Return the rows of nodes [n, width], in this process's memory."""
        division = self.files.division
        partition, row = division.places(ids.cpu().numpy())
        found = torch.empty(len(ids), self.files.width, dtype=self.files.dtype)
        for one in np.unique(partition).tolist():
            mine = torch.from_numpy(np.flatnonzero(partition == one))
            found[mine] = self._rows(one)[torch.from_numpy(row[mine.numpy()])].cpu()
        return found

    def _rows(self, partition: int) -> Tensor:
        held, version = self.buffer.rows(partition), self.buffer.versions[partition]
        if held is not None:
            return held.values
        if version:
            return self.files.map(partition, version)
        first = self.files.empty(partition)
        self.files.read(partition, 0, first)
        return first.values

    def keep_best(self) -> None:
        """Note that these are the best rows so far."""
        self.buffer.flush()
        self.best = [*self.buffer.versions]
        self._pin()

    def restore_best(self) -> None:
        """Put back the best rows, where some were noted."""
        if self.best is not None:
            self.buffer.restore(self.best)

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint has of the rows: the versions that its files hold, safely on the disk."""
        self.buffer.flush()
        self.files.sync()
        self._kept = [*self._kept[-1:], [*self.buffer.versions]]
        self._pin()
        best = {} if self.best is None else {BEST: torch.tensor(self.best)}
        return {VERSIONS: torch.tensor(self.buffer.versions), **best}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave; what was written since is removed."""
        self.best = state[BEST].tolist() if BEST in state else None
        self._kept = [state[VERSIONS].tolist()]
        self._pin()
        self.buffer.restore(self._kept[0])

    def tidy(self) -> None:
        """Remove what neither the last checkpoint nor the best epoch has: what a killed run left, too."""
        self._kept = self._kept[-1:]
        self._pin()
        self.files.tidy(self.buffer.versions)

    def export(self, folder: Path) -> None:
        """Write all rows in the order of ids, `rows.npy` [nodes, width], some after the other."""
        count, width = int(self.files.division.offsets[-1]), self.files.width
        step = max(1, _PIECE // width)
        with new_directory(folder, overwrite=True) as partial:
            file = ArrayFile(
                partial / "rows.npy", np.dtype(str(self.files.dtype).split(".")[-1]), (count, width)
            )
            for first in range(0, count, step):
                file.append(self.rows_of(torch.arange(first, min(first + step, count))).numpy())
            seal_directory(partial, {"rows": count, "width": width}, arrays={"rows": file.close()})

    def _pin(self) -> None:
        kept = [*self._kept, *([] if self.best is None else [self.best])]
        self.files.pinned = {each for versions in kept for each in enumerate(versions)}


def folder_of(run: Path | None, group: Group) -> tuple[Path, tempfile.TemporaryDirectory[str] | None]:
    """Return where a run has its tables, the same for all workers, and what removes those of no run."""
    if run is not None:
        return run / "tables", None
    own = tempfile.TemporaryDirectory(prefix="weft-tables-") if group.rank == 0 else None
    name = group.all_gather_json(None if own is None else own.name)[0]
    return Path(name), own
