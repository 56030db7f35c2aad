"""What comes back is what was sent; what is no frame is refused before memory is taken for it."""

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from weft.errors import FormatError
from weft.reading.bounds import LIMIT
from weft.strategies.tensor_workers.frames import Frame, decoded, encoded, receive, send

HEAD: dict[str, Any] = {"kind": "task", "number": 1, "name": "x", "weights": [], "arrays": []}


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        other.settimeout(10)
        yield one, other


def test_a_frame_arrives_as_it_was(pair: Any) -> None:
    arrays = [torch.arange(6.0).view(2, 3), torch.zeros(0, 4), torch.ones(2, dtype=torch.float64)]
    arrays += [torch.tensor([3, -(2**40)]), torch.tensor(2.5)]
    assert send(pair[0], Frame("task", 7, "apply_vertex", ["1.w"], arrays)) > 40
    for found in (receive(pair[1]), decoded(encoded(Frame("task", 7, "apply_vertex", ["1.w"], arrays)))):
        assert (found.kind, found.number, found.name, found.weights) == ("task", 7, "apply_vertex", ["1.w"])
        assert [each.dtype for each in found.arrays] == [each.dtype for each in arrays]
        assert all(torch.equal(a, b) for a, b in zip(found.arrays, arrays, strict=True))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ({"number": -1}, "number must be a whole number"),
        ({"kind": 3}, "kind must be text"),
        ({"weights": [1]}, r"weights\[0\] must be text"),
        ({"arrays": [{"dtype": "object", "shape": [1]}]}, "an array of object"),
        ({"arrays": [{"dtype": "float32", "shape": [1] * 9}]}, "which nobody sends"),
        ({"arrays": [{"dtype": "float32", "shape": [2**40]}]}, "more than may be read"),
        ({"arrays": [{"dtype": "float32", "shape": [0]}] * 17}, "17 arrays in a frame, 16 are allowed"),
        (
            {"arrays": [{"dtype": "float32", "shape": ["1"]}]},
            r"arrays\[0\]\.shape\[0\] must be a whole number",
        ),
    ],
)
def test_headers_are_checked(pair: Any, head: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, "1GiB")
    text = json.dumps(HEAD | head).encode()
    pair[0].sendall(struct.pack("!I", len(text)) + text)
    with pytest.raises(FormatError, match=message):
        receive(pair[1])


def test_the_shape_of_an_empty_array_is_bounded_too() -> None:
    told = {"dtype": "float32", "shape": [0, 2**40, 2**40, 2**40]}
    text = json.dumps({**HEAD, "arrays": [told]}).encode()
    with pytest.raises(FormatError, match="which nobody sends"):
        decoded(struct.pack("!I", len(text)) + text)


def test_a_header_is_bounded_and_may_not_be_cut_short(pair: Any) -> None:
    pair[0].sendall(struct.pack("!I", 1 << 20))
    with pytest.raises(FormatError, match="a header of 1,048,576 bytes"):
        receive(pair[1])
    pair[0].sendall(struct.pack("!I", 10) + b"{}")
    pair[0].shutdown(socket.SHUT_RDWR)
    with pytest.raises(ConnectionError):
        receive(pair[1])


def test_bytes_that_end_too_soon_or_are_none_are_refused() -> None:
    held = encoded(Frame("answer", arrays=[torch.ones(3)]))
    with pytest.raises(ConnectionError):
        decoded(held[:-1])
    with pytest.raises(FormatError, match="expected bytes, got list"):
        decoded([1])  # type: ignore[arg-type]
