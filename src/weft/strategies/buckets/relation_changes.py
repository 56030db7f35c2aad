"""Weights of relations where workers train visits as they come: changes in files, added as visits end.

A worker begins a visit with all changes that were told until then, and leaves its own: what the visit added
to the weights and to Adagrad's sums. That is PyTorch-BigGraph's parameter server, which adds changes as they
come; an age is how many others came between. In the end all workers have added all changes in one order.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from weft.errors import FormatError, TrainingError
from weft.strategies.buckets.round_merge import flat


class RelationChanges:
    """The weights of one epoch: `pull` before a visit, `push` after it, `settle` in the end."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer, folder: Path, epoch: int
    ) -> None:
        self._held = [
            *(each.data for each in parameters),
            *(optimizer.state[each]["sum"] for each in parameters),
        ]
        self._stem = folder / f"relations-{epoch:06d}"
        self._start = [each.clone() for each in self._held]
        """What all that is known adds up to."""
        self._known = 0

    def pull(self, done: Sequence[int]) -> int:
        """Go on from the changes of visits, those that ended first come first; return how many there are."""
        for visit in done[self._known :]:
            change, at = self._read(visit), 0
            for start in self._start:
                start += change[at : at + start.numel()].view_as(start).to(start)
                at += start.numel()
        self._known = len(done)
        for held, start in zip(self._held, self._start):
            held.copy_(start)
        return self._known

    def push(self, visit: int) -> None:
        """Leave what a visit changed since `pull`, for whoever reads that it is done."""
        change = flat([held - start for held, start in zip(self._held, self._start)]).cpu().numpy()
        path = self._path(visit)
        partial = path.with_suffix(".partial")
        try:
            with open(partial, "wb") as file:
                np.save(file, change, allow_pickle=False)
            os.replace(partial, path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise TrainingError(
                f"cannot write {path}: {error.strerror}; see to the disk and continue with --resume"
            ) from None

    def remove(self) -> None:
        """Remove the files, once all workers have added them up."""
        for path in self._stem.parent.glob(f"{self._stem.name}-*"):
            path.unlink(missing_ok=True)

    def _path(self, visit: int) -> Path:
        return self._stem.with_name(f"{self._stem.name}-{visit:06d}.npy")

    def _read(self, visit: int) -> torch.Tensor:
        size, path = sum(each.numel() for each in self._start), self._path(visit)
        try:
            found = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise FormatError(f"cannot read {path}: {error}; all workers must see the run's folder") from None
        if found.shape != (size,):
            raise FormatError(f"{path}: expected {size:,} numbers, found {list(found.shape)}")
        return torch.from_numpy(found)
