"""Memory put aside until it is asked for: a GPU's in the host's memory, the host's on its disk."""

import os
import tempfile
import time
import weakref
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.errors import InputError

_TRIAL = 16 << 20
"""The bytes that are moved once each way, to see how fast it goes."""


class Aside:
    """The bytes of one storage that lie elsewhere; where they lie goes with this."""

    def __init__(self, storage: torch.UntypedStorage, folder: Path | None) -> None:
        self.device, self.size = storage.device, storage.nbytes()
        self._held: Any = None
        held = _bytes_of(storage)
        if self.device.type == "cpu":
            self._place: Any = _File(held, folder)
        else:
            self._place = torch.empty(self.size, dtype=torch.uint8, pin_memory=True).copy_(held)

    def storage(self) -> torch.UntypedStorage:
        """Return the bytes where they were; those who ask while one has them share them."""
        held: torch.UntypedStorage | None = None if self._held is None else self._held()
        if held is None:
            made = torch.empty(self.size, dtype=torch.uint8, device=self.device)
            if isinstance(self._place, _File):
                self._place.read(made)
            else:
                made.copy_(self._place)
            held = made.untyped_storage()
            self._held = weakref.ref(held)
        return held


class _File:
    """Bytes in a file without a name, which ends with this, however the process does."""

    def __init__(self, held: Tensor, folder: Path | None) -> None:
        self.folder = folder
        try:
            self.file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - it lives as long as this
            left = memoryview(held.numpy().data)
            while left:
                left = left[self.file.write(left) :]
        except OSError as error:
            raise InputError(f"strategy.activation: {_where(folder)}: {error.strerror}; {_REMEDY}") from None

    def read(self, into: Tensor) -> None:
        """Fill the bytes again."""
        left, place = memoryview(into.numpy().data), 0
        while left:
            count = os.preadv(self.file.fileno(), [left], place)
            if count == 0:
                raise InputError(f"strategy.activation: {_where(self.folder)}: a file ends early; {_REMEDY}")
            left, place = left[count:], place + count


_REMEDY = "give more strategy.memory, or room there"


def _where(folder: Path | None) -> str:
    return f"what backward needs, put aside in {folder or tempfile.gettempdir()}"


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def aside_seconds(device: torch.device, folder: Path | None) -> float:
    """Return what a byte takes to be put aside and brought back, measured here."""
    sent = torch.ones(_TRIAL, dtype=torch.uint8, device=device)
    finish(device)
    began = time.perf_counter()
    back = Aside(sent.untyped_storage(), folder).storage()
    finish(device)
    return (time.perf_counter() - began) / back.nbytes()


def finish(device: torch.device) -> None:
    """Wait until a device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
