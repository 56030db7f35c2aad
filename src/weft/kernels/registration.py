"""How an operator is entered with torch: schema, forms, fake and gradient in one call.

`Library.define` and `impl` cost about half of what `custom_op` costs a call, which shows on small graphs.
Names live in the `weft` namespace; a family of operators holds its own fragment of it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.library import Library

_fragment: Any = Library("weft", "FRAGMENT")  # type: ignore[no-untyped-call]

Form = Callable[..., Any]


def define(
    schema: str,
    *,
    reference: Form,
    cpu: Form | None = None,
    fake: Form,
    setup: Form | None = None,
    backward: Form | None = None,
) -> Any:
    """Enter an operator and return its overload: `cpu` serves CPU tensors, `reference` all other devices.

    `setup(ctx, inputs, output)` saves what `backward(ctx, *grads)` needs, as for register_autograd of torch.
    """
    name = schema.split("(", 1)[0]
    _fragment.define(schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
    _fragment.impl(name, reference, "CompositeExplicitAutograd")
    if cpu is not None:
        _fragment.impl(name, cpu, "CPU")
    torch.library.register_fake(f"weft::{name}", fake, lib=_fragment)
    if backward is not None:
        torch.library.register_autograd(f"weft::{name}", backward, setup_context=setup, lib=_fragment)
    return getattr(torch.ops.weft, name).default


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Return the type that sums over values of `dtype` are kept in: float32 for the 16-bit types."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def as_indptr(indptr: Tensor) -> Tensor:
    """Return row pointers as int64, which is what every operator takes."""
    return indptr if indptr.dtype == torch.int64 else indptr.to(torch.int64)


def index_dtype(bound: int) -> torch.dtype:
    """Return int32 where numbers below `bound` fit, else int64."""
    return torch.int32 if bound < 1 << 31 else torch.int64
