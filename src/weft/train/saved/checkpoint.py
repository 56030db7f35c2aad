"""Checkpoints: everything a run needs to go on as if it had never stopped.

    checkpoint/
      epoch-000012/    manifest.json and tensors.safetensors; epoch-000012-000345 after 345 steps more
      ranks-000012/    exchange-rank00000.safetensors …: what each worker's exchange holds, where it holds any
      latest           the name of the folder that counts

A folder is written beside its place, synced and renamed, and only then does `latest` name it, so a run killed
at any moment has the old checkpoint or the new one. The files of workers come first, and the manifest holds
their checksums. Tensors are safetensors, all else JSON, all checksummed.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as bytes_from_tensors
from torch import Tensor, nn

from weft.errors import FormatError, InputError
from weft.events import dumps
from weft.format import atomic_write, expect_no_link, read_directory, read_extra, write_directory
from weft.placing import tidy_after_killed_writers
from weft.reading.damage import reading
from weft.reading.json_values import Each, Maybe, WholeNumber, expect_shape

Tensors = dict[str, Tensor]
FILE = "tensors.safetensors"
_CHECKSUM = "sha256"
_WAY_OUT = "restore that folder from a copy, or start anew with another --out (in Python: out=)"


@dataclass(frozen=True)
class Checkpoint:
    """What one checkpoint holds."""

    folder: Path
    epoch: int
    """How many epochs were done."""
    tensors: dict[str, Tensors]
    """Group (model, best, optimizer, random) to name to tensor."""
    state: dict[str, Any]
    """Everything that is no tensor."""

    def copied(self) -> "Checkpoint":
        """Return the same with tensors of its own, which an optimiser may go on changing."""
        tensors = {
            group: {name: value.clone() for name, value in values.items()}
            for group, values in self.tensors.items()
        }
        return replace(self, tensors=tensors, state=deepcopy(self.state))

    def to_bytes(self) -> bytes:
        """Return it as it travels to a worker that has none: the length of a text, the text, the tensors."""
        text = dumps({"epoch": self.epoch, "state": self.state, "groups": sorted(self.tensors)}).encode()
        return len(text).to_bytes(8, "little") + text + to_bytes(_joined(self.tensors))

    @staticmethod
    def from_bytes(data: bytes, folder: Path) -> "Checkpoint":
        """Return what `to_bytes` gave."""
        end = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:end])
        tensors = _by_group(from_bytes(data[end:], folder), header["groups"])
        return Checkpoint(folder, header["epoch"], tensors, header["state"])


class Checkpoints:
    """The checkpoints of one run folder; only the latest is kept, and it holds the best weights as well."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(
        self, epoch: int, tensors: Mapping[str, Tensors], state: Mapping[str, Any], *, step: int = 0
    ) -> None:
        """Write a checkpoint after `epoch` epochs and `step` steps, the latest; remove the one before."""
        name = f"epoch-{_moment(epoch, step)}"
        target = self.folder / name
        # One file for all groups: syncing a file to disk costs more than writing it.
        joined = _joined(tensors)
        meta = {"epoch": epoch, "state": dict(state), "groups": sorted(tensors)}
        write_directory(target, {}, meta, overwrite=True, files={FILE: to_bytes(joined)})
        atomic_write(self.folder / "latest", f"{name}\n".encode())
        self._remove_all_but(name)

    def save_rank(
        self, epoch: int, rank: int, tensors: Mapping[str, Tensor], *, step: int = 0
    ) -> dict[str, str]:
        """Write what one worker's exchange holds; gives the entry that `save` is to keep under "ranks"."""
        folder = self.folder / f"ranks-{_moment(epoch, step)}"
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
        data = to_bytes(state)
        path = folder / f"exchange-rank{rank:05d}.safetensors"
        atomic_write(path, data)
        return {"file": f"{folder.name}/{path.name}", "sha256": hashlib.sha256(data).hexdigest()}

    def count_ranks(self, saved: Checkpoint) -> int:
        """Return how many workers left something with a checkpoint: all of them, or none."""
        return len(saved.state.get("ranks") or [])

    def load_rank(self, saved: Checkpoint, rank: int) -> Tensors:
        """Return what `save_rank` wrote for one of the workers that there were."""
        kept = saved.state["ranks"][rank]["sha256"]
        folder = saved.folder.name.replace("epoch-", "ranks-", 1)
        path = self.folder / folder / f"exchange-rank{rank:05d}.safetensors"
        expect_no_link(path.parent)
        expect_no_link(path)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise FormatError(f"cannot read {path}: {error.strerror}; {_WAY_OUT}") from None
        if hashlib.sha256(data).hexdigest() != kept:
            raise FormatError(f"{path}: not what the checkpoint's manifest says; {_WAY_OUT}")
        return from_bytes(data, path)

    def load(self) -> Checkpoint | None:
        """Return the latest checkpoint, checked against its checksums, or None if there is none yet."""
        try:
            name = self._latest()
            if name is None:
                return self._newest()
            if not (self.folder / name).exists():  # killed while the same moment was saved again
                tidy_after_killed_writers(self.folder / name)
            return self._read(self.folder / name)
        except FormatError as error:
            raise FormatError(f"{error}; {_WAY_OUT}") from None

    def _newest(self) -> Checkpoint | None:
        """Return the last whole checkpoint where `latest` is gone; None where there is none at all."""
        places = [_place(path.name) for path in self.folder.glob("epoch-*")] if self.folder.is_dir() else []
        problem: FormatError | None = None
        for moment in sorted((each for each in places if each is not None), reverse=True):
            try:
                return self._read(self.folder / f"epoch-{_moment(*moment)}")
            except FormatError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return None

    def _latest(self) -> str | None:
        expect_no_link(self.folder / "latest")
        try:
            name = (self.folder / "latest").read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise FormatError(f"cannot read {self.folder / 'latest'}: {error}") from None
        if not re.fullmatch(r"epoch-\d+(-\d+)?", name):
            raise FormatError(
                f"{self.folder / 'latest'}: expected the name of a checkpoint, got {name[:80]!r}"
            )
        return name

    def _read(self, folder: Path) -> Checkpoint:
        expect_no_link(folder)
        _, meta = read_directory(folder)
        expect_shape(meta, {"epoch": WholeNumber(), "groups": [str], "state": Each(object)}, folder)
        expect_shape(meta["state"], {"ranks": Maybe([{"sha256": str}])}, folder)
        with reading(folder):
            tensors = _by_group(from_bytes(read_extra(folder, FILE), folder / FILE), meta["groups"])
        return Checkpoint(folder, meta["epoch"], tensors, meta["state"])

    def _remove_all_but(self, name: str) -> None:
        for path in self.folder.iterdir():
            abandoned = path.name.startswith((".epoch-", ".latest."))
            number = re.fullmatch(r"(?:epoch|ranks)-(\d+(?:-\d+)?)", path.name)
            if abandoned or (number and f"epoch-{number[1]}" != name):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _joined(tensors: Mapping[str, Tensors]) -> Tensors:
    return {f"{group}/{key}": value for group, values in tensors.items() for key, value in values.items()}


def _by_group(joined: Tensors, groups: list[str]) -> dict[str, Tensors]:
    tensors: dict[str, Tensors] = {group: {} for group in groups}
    for name, value in joined.items():
        group, _, key = name.partition("/")
        tensors[group][key] = value
    return tensors


def _place(name: str) -> tuple[int, int] | None:
    """Return the epochs and steps of the name of a checkpoint."""
    match = re.fullmatch(r"epoch-(\d+)(?:-(\d+))?", name)
    return None if match is None else (int(match[1]), int(match[2] or 0))


def _moment(epoch: int, step: int) -> str:
    return f"{epoch:06d}-{step:06d}" if step else f"{epoch:06d}"


def save_weights(path: Path, model: nn.Module) -> None:
    """Write the weights of a model as one safetensors file, which loads into the same model anywhere.

    The metadata of the file hold a checksum of the weights.
    """
    weights = weights_of(model)
    atomic_write(path, bytes_from_tensors(weights, {_CHECKSUM: checksum_of(weights)}))


def load_weights(path: str | Path, model: nn.Module, *, rows: Mapping[str, Tensor] | None = None) -> None:
    """Read weights that `save_weights` wrote into a model of the same shape, or refuse damaged ones.

    `rows` are those to take of some weights, by name, where the model has learned rows of other nodes.
    A safetensors file of another writer, without metadata, has nothing to compare its weights with.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise FormatError(f"cannot read weights {path}: {error.strerror}") from None
    tensors = from_bytes(data, Path(path))
    with reading(path):
        metadata = _metadata(data)
    if metadata is not None and metadata.get(_CHECKSUM) != checksum_of(tensors):
        raise FormatError(
            f"{path}: damaged, the weights are not those of their checksum; restore it from a copy, or train "
            "again"
        )
    for name, chosen in (rows or {}).items():
        tensors[name] = tensors[name][chosen]
    assign_weights(model, tensors, where=str(path))


def checksum_of(tensors: Mapping[str, Any]) -> str:
    """Return the SHA-256 of named tensors: their names, types, shapes and values."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _metadata(data: bytes) -> dict[str, str] | None:
    """Return what the header of a safetensors file says beside its tensors; None: nothing."""
    size = int.from_bytes(data[:8], "little")
    metadata: dict[str, str] | None = json.loads(data[8 : 8 + size]).get("__metadata__")
    return metadata


def weights_of(model: nn.Module) -> Tensors:
    """Return copies of a model's parameters and buffers, on the CPU."""
    weights = model.state_dict()
    others = [name for name, value in weights.items() if not isinstance(value, Tensor)]
    if others:
        raise InputError(f"the model's state {others[0]!r} is not a tensor, so a checkpoint cannot hold it")
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in weights.items()}


def assign_weights(model: nn.Module, tensors: Tensors, *, where: str) -> None:
    """Copy tensors into a model, or raise naming those that do not fit it."""
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    if expected != shapes:
        wrong = [name for name in sorted({*expected, *shapes}) if expected.get(name) != shapes.get(name)]
        shown = [
            f"{name} is {_shape(shapes.get(name))}, the model's is {_shape(expected.get(name))}"
            for name in wrong[:3]
        ]
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise InputError(f"{where} is of another model: {'; '.join(shown)}{more}")
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value.copy_(tensors[name])


def optimizer_state(optimizer: torch.optim.Optimizer) -> tuple[Tensors, dict[str, Any]]:
    """Return an optimiser's state as tensors by `parameter.name`, and all else as JSON values."""
    state = optimizer.state_dict()
    tensors: Tensors = {}
    values: dict[str, dict[str, Any]] = {}
    for index, entries in state["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{name}"] = value.detach().to("cpu", copy=True).contiguous()
            else:
                values.setdefault(str(index), {})[name] = value
    return tensors, {"values": values, "groups": state["param_groups"]}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Tensors, rest: Mapping[str, Any]) -> None:
    """Give an optimiser the state that `optimizer_state` took, perhaps of one that has other weights too."""
    own = optimizer.state_dict()["param_groups"]
    known = {index for group in own for index in group["params"]}
    state: dict[int, dict[str, Any]] = {
        int(index): dict(value) for index, value in rest["values"].items() if int(index) in known
    }
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    # JSON has no tuples, and Adam's pair of betas is one.
    groups = [
        {key: tuple(value) if key == "betas" else value for key, value in group.items()}
        | {"params": own_group["params"]}
        for group, own_group in zip(rest["groups"], own)
    ]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def to_bytes(tensors: Tensors) -> bytes:
    """Return named tensors as the bytes of a safetensors file."""
    data: bytes = bytes_from_tensors(tensors)
    return data


def from_bytes(data: bytes, path: Path) -> Tensors:
    """Return the named tensors in the bytes of a safetensors file."""
    try:
        tensors: Tensors = tensors_from_bytes(data)
    except (SafetensorError, ValueError, json.JSONDecodeError) as error:
        raise FormatError(f"{path}: not a safetensors file ({' '.join(str(error).split())[:120]})") from None
    return tensors


def _shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else f"[{', '.join(map(str, shape))}]"
