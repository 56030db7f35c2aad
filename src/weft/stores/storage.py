"""Features in fewer bits than they are used in: float16, bfloat16, or int8 with one scale per row."""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from weft.errors import InputError

Storage = Literal["float64", "float32", "float16", "bfloat16", "int8"]
_LEVELS = 127.0


class Stored(NamedTuple):
    """Rows as they are kept."""

    values: Tensor
    """[N, ...] in the storage's type."""
    scale: Tensor | None
    """[N] float32 that int8 values are multiplied by."""


def storage_type(storage: str) -> torch.dtype:
    """Return the type that values are kept in."""
    if storage not in get_args(Storage):
        raise InputError(f"storage must be one of {', '.join(get_args(Storage))}, got {storage!r}")
    dtype: torch.dtype = getattr(torch, storage)
    return dtype


def encode(x: Tensor, storage: str | None) -> Stored:
    """Return rows as they are kept; None keeps them as they are.

    An int8 row is x = scale · q with scale = max|x| / 127: an element is off by at most half a scale.
    """
    if storage is None:
        return Stored(x, None)
    kind = storage_type(storage)
    if kind == torch.int8:
        largest = x.abs().flatten(1).amax(1).float() if x[:1].numel() else torch.zeros(len(x))
        if not bool(torch.isfinite(largest).all()):
            wrong = int((~torch.isfinite(largest)).sum())
            raise InputError(
                f"{wrong:,} rows do not fit int8: a value is not finite, or beyond float32; mend the features"
            )
        scale = largest / _LEVELS
        inverse = torch.where(scale > 0, scale.reciprocal(), 0)
        return Stored((x * _beside(inverse, x)).round_().to(torch.int8), scale)
    values = x.to(kind)
    if not bool(torch.isfinite(values).all()):
        wrong = int((~torch.isfinite(values)).sum())
        raise InputError(f"{wrong:,} values do not fit {storage}; keep the features in bfloat16 or float32")
    return Stored(values, None)


def decode(values: Tensor, scale: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return kept rows in the type they are used in."""
    if scale is None:
        return values.to(dtype)
    return values.to(dtype).mul_(_beside(scale.to(dtype), values))


def row_bytes(values: Tensor, scale: Tensor | None) -> int:
    """Return the bytes that one row is kept in."""
    return values.shape[1:].numel() * values.element_size() + (0 if scale is None else 4)


def _beside(scale: Tensor, x: Tensor) -> Tensor:
    return scale.reshape(-1, *[1] * (x.dim() - 1))
