"""Rows as codes of few bits, for what crosses the network: a step a row, stochastic rounding by counter.

A coded row is bytes: its least value and its step as two float32, then the codes. Of 4 and 2 bits, 2 and 4
codes share a byte: those that stand a half or a quarter of the row apart. A code is rounded up or down by the
draw of its (id, lane), so the mean over draws is the value, and the bytes of a row are the same wherever it
is coded.
"""

import torch
from torch import Tensor

from weft.draw import Stream
from weft.kernels import native, reference
from weft.kernels.registration import as_clock, is_subclass

BITS = (2, 4, 8, 16)
_HEAD = 8  # bytes: the least value and the step
_MASK = {2: 3, 4: 15, 8: 255, 16: 65535}

_P, _L, _I = native.POINTER, native.LONG, native.INT
_SIGNATURES: dict[str, list[type]] = {
    "weft_quantise": [_P, _P, _P, _L, _L, _I, _P, _L, _L, _P, _I, _I],
    "weft_dequantise": [_P, _P, _L, _L, _I, _P, _I, _I],
}
native.declare(_SIGNATURES)


def coded_bytes(width: int, bits: int) -> int:
    """Return the bytes of a coded row of `width` values."""
    return _HEAD + (width * bits + 7) // 8


def quantise(
    x: Tensor, ids: Tensor, bits: int, *, clock: Tensor, layer: int = 0, rows: Tensor | None = None
) -> Tensor:
    """Return rows of x [N, width] as bytes, uint8 [n, coded_bytes]; `rows` says which, None: all.

    Row i is keyed by ids[i]. 16 bits and fewer are below the rounding of float32, in which codes are made.
    """
    width = x.shape[1]
    count = len(x) if rows is None else len(rows)
    assert bits in BITS, bits
    assert len(ids) == count, "one id per row"
    if not count or not width:
        return torch.zeros(count, coded_bytes(width, bits), dtype=torch.uint8, device=x.device)
    if is_subclass(x):  # one without values, as in a rehearsal: codes have a shape alone
        return x.new_empty((count, coded_bytes(width, bits)), dtype=torch.uint8)
    code = native.DTYPE_CODES.get(x.dtype)
    if not native.available() or code is None or x.device.type != "cpu":
        return _quantise(x if rows is None else x[rows], ids, bits, as_clock(clock), layer)
    out = native.empty((count, coded_bytes(width, bits)), torch.uint8)
    rows, ids = None if rows is None else rows.to(torch.int64), ids.to(torch.int64)
    draws = (as_clock(clock), int(Stream.ROUND), layer)
    native.call("weft_quantise", x, rows, ids, count, width, bits, *draws, out, code, native.threads())
    return out


def dequantise(
    coded: Tensor, width: int, bits: int, dtype: torch.dtype, *, places: Tensor | None = None
) -> Tensor:
    """Return the rows [n, width] that bytes of `quantise` stand for; row i becomes row places[i]."""
    count = len(coded)
    if not count or not width:
        return torch.zeros(count, width, dtype=dtype, device=coded.device)
    if is_subclass(coded):
        return coded.new_empty((count, width), dtype=dtype)
    expected = (count, coded_bytes(width, bits))
    if coded.shape != expected or coded.dtype != torch.uint8:
        raise ValueError(
            f"dequantise: {count} rows of {width} values in {bits} bits are uint8 {list(expected)}, got "
            f"{coded.dtype} {list(coded.shape)}"
        )
    code = native.DTYPE_CODES.get(dtype)
    if not native.available() or code is None or coded.device.type != "cpu":
        rows = _dequantise(coded, width, bits, dtype)
        return rows if places is None else torch.empty_like(rows).index_copy_(0, places.long(), rows)
    places = None if places is None else places.to(torch.int64)
    out = native.empty((count, width), dtype)
    native.call("weft_dequantise", coded, places, count, width, bits, out, code, native.threads())
    return out


def _quantise(x: Tensor, ids: Tensor, bits: int, clock: Tensor, layer: int) -> Tensor:
    """The definition, on any device."""
    x = x.float()
    low = x.amin(1, keepdim=True)
    step = (x.amax(1, keepdim=True) - low) / _MASK[bits]
    tiny = step < torch.finfo(torch.float32).tiny
    inverse = torch.where(tiny, torch.zeros_like(step), 1.0 / step)
    lanes = torch.arange(x.shape[1], device=x.device)
    turn = (reference.draw(clock, Stream.ROUND, layer, ids[:, None], lanes) >> 8).float() * 2.0**-24
    codes = ((x - low) * inverse + turn).nan_to_num().int().clamp(0, _MASK[bits])
    head = torch.cat([low, step], 1).view(torch.uint8)
    return torch.cat([head, _pack(codes, bits)], 1)


def _pack(codes: Tensor, bits: int) -> Tensor:
    if bits == 16:
        return torch.stack([codes & 255, codes >> 8], 2).to(torch.uint8).flatten(1)
    planes = 8 // bits
    stride = -(-codes.shape[1] // planes)
    padded = torch.nn.functional.pad(codes, (0, planes * stride - codes.shape[1]))
    shifts = torch.arange(planes, device=codes.device)[:, None] * bits
    return (padded.reshape(-1, planes, stride) << shifts).sum(1).to(torch.uint8)


def _dequantise(coded: Tensor, width: int, bits: int, dtype: torch.dtype) -> Tensor:
    head = coded[:, :_HEAD].contiguous().view(torch.float32)
    packed = coded[:, _HEAD:].int()
    if bits == 16:
        codes = packed[:, 0::2] + (packed[:, 1::2] << 8)
    else:
        shifts = torch.arange(8 // bits, device=coded.device)[:, None] * bits
        codes = ((packed[:, None, :] >> shifts) & _MASK[bits]).flatten(1)[:, :width]
    return (head[:, :1] + head[:, 1:] * codes.float()).to(dtype)
