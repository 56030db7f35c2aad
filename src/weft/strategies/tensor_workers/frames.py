"""What a run and its tensor workers say: a JSON header of bounded size, then the bytes of arrays. No pickle.

A frame says what it holds before the bytes come: types, shapes and so sizes are checked against what may be
read before any memory is taken.
"""

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from weft.errors import FormatError
from weft.reading.bounds import readable_bytes
from weft.reading.json_values import WholeNumber, parse_json

_HEADER = 1 << 16
"""The bytes that a header may have."""
_ARRAYS, _AXES = 16, 4
_SIZE = WholeNumber(0, 2**40)
_TYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}
_SHAPE: dict[str, Any] = {
    "kind": str,
    "number": WholeNumber(),
    "name": str,
    "weights": [str],
    "arrays": [{"dtype": str, "shape": [_SIZE]}],
}
_LENGTH = struct.Struct("!I")


class FrameStream(Protocol):
    """What frames go through: a socket, or bytes that are put together."""

    def sendall(self, data: Any, /) -> Any:
        """Send all of some bytes."""

    def recv_into(self, buffer: Any, /) -> int:
        """Fill a buffer with what there is, and return how many bytes that were."""


@dataclass(frozen=True)
class Frame:
    """One message: a task, an answer, a weight that is asked for or one that is given."""

    kind: str
    number: int = 0
    """Of the task."""
    name: str = ""
    """Of the operator, or of the weight."""
    weights: Sequence[str] = ()
    """The weights that a task uses, by name and version."""
    arrays: Sequence[Tensor] = field(default_factory=list)


def is_carried(array: Tensor) -> bool:
    """Return whether a frame can hold such an array."""
    return str(array.dtype).removeprefix("torch.") in _TYPES and array.dim() <= _AXES


def send(stream: FrameStream, frame: Frame) -> int:
    """Send a frame, and return its bytes."""
    rows = [each.detach().contiguous() for each in frame.arrays]
    told = [{"dtype": str(each.dtype).removeprefix("torch."), "shape": list(each.shape)} for each in rows]
    head = {"kind": frame.kind, "number": frame.number, "name": frame.name, "weights": list(frame.weights)}
    text = json.dumps({**head, "arrays": told}).encode()
    stream.sendall(_LENGTH.pack(len(text)) + text)
    for each in rows:
        if each.numel():
            stream.sendall(_raw(each))
    return len(text) + sum(each.numel() * each.element_size() for each in rows)


def receive(stream: FrameStream) -> Frame:
    """Return the next frame, or refuse what is none."""
    (length,) = _LENGTH.unpack(_exactly(stream, bytearray(_LENGTH.size)))
    if length > _HEADER:
        raise FormatError(f"{_WHERE}: a header of {length:,} bytes, {_HEADER:,} are allowed")
    head = parse_json(bytes(_exactly(stream, bytearray(length))), _WHERE, _SHAPE)
    if len(head["arrays"]) > _ARRAYS:
        raise FormatError(f"{_WHERE}: {len(head['arrays'])} arrays in a frame, {_ARRAYS} are allowed")
    total = sum(_bytes(each) for each in head["arrays"])
    if total > readable_bytes():
        raise FormatError(f"{_WHERE}: arrays of {total:,} bytes, more than may be read")
    arrays = [_array(stream, each) for each in head["arrays"]]
    return Frame(head["kind"], head["number"], head["name"], head["weights"], arrays)


class _Bytes:
    """A stream of bytes in memory."""

    def __init__(self, held: bytes = b"") -> None:
        self.parts: list[bytes] = []
        self._rest = memoryview(held)

    def sendall(self, data: Any, /) -> None:
        """Keep some bytes."""
        self.parts.append(bytes(data))

    def recv_into(self, buffer: Any, /) -> int:
        """Give the next ones, none at the end."""
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def encoded(frame: Frame) -> bytes:
    """Return a frame as bytes."""
    stream = _Bytes()
    send(stream, frame)
    return b"".join(stream.parts)


def decoded(held: bytes) -> Frame:
    """Return the frame that bytes are, or refuse what is none."""
    if not isinstance(held, bytes):
        raise FormatError(f"{_WHERE}: expected bytes, got {type(held).__name__}")
    return receive(_Bytes(held))


_WHERE = "tensor worker"


def _bytes(told: dict[str, Any]) -> int:
    if told["dtype"] not in _TYPES or len(told["shape"]) > _AXES:
        raise FormatError(f"{_WHERE}: an array of {told['dtype']} {told['shape']}, which nobody sends")
    kind: torch.dtype = _TYPES[told["dtype"]]
    shape: list[int] = told["shape"]
    if math.prod(max(1, extent) for extent in shape) > _SIZE.most:  # strides, which an empty one has too
        raise FormatError(f"{_WHERE}: an array of the shape {shape}, which nobody sends")
    return math.prod(shape) * kind.itemsize


def _array(stream: FrameStream, told: dict[str, Any]) -> Tensor:
    rows = torch.empty(told["shape"], dtype=_TYPES[told["dtype"]])
    if rows.numel():
        _exactly(stream, _raw(rows))
    return rows


def _raw(rows: Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor, where they lie."""
    return memoryview(rows.numpy().reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def _exactly(stream: FrameStream, into: Any) -> Any:
    """Fill a buffer from a stream, and return it."""
    rest = memoryview(into)
    while len(rest):
        count = stream.recv_into(rest)
        if not count:
            raise ConnectionError("the other end is closed")
        rest = rest[count:]
    return into
