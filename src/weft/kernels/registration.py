"""How an operator is entered with torch: schema, forms, fake and gradient in one call.

`Library.define` and `impl` cost about half of what `custom_op` costs a call, which shows on small graphs. The
rest is torch's dispatcher and its general autograd wrapper: some 40 microseconds a call with gradients.
`eager` goes around both where nothing would see the difference.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.library import Library

from weft.errors import InputError
from weft.kernels import gpu as gpu_forms
from weft.kernels.second import plain_gradients, refuse
from weft.kernels.transforms import refuse_transforms

_fragment: Any = Library("weft", "FRAGMENT")  # type: ignore[no-untyped-call]

Form = Callable[..., Any]


class _Direct(NamedTuple):
    """What a call without the dispatcher uses: the form, and a torch.autograd.Function of it."""

    form: Form
    function: type[Function]


_direct: dict[tuple[Any, bool], _Direct] = {}
"""By operator and whether its tensors are on a GPU."""


def define(
    schema: str,
    *,
    reference: Form,
    cpu: Form | None = None,
    gpu: str | None = None,
    fake: Form,
    setup: Form | None = None,
    backward: Form | None = None,
    plain_backward: bool = False,
) -> Any:
    """Enter an operator and return its overload: `cpu` serves CPU tensors, `reference` other devices.

    `gpu` names the form for CUDA tensors, `module.function` in weft.kernels.triton; without, the reference.

    `setup(ctx, inputs, output)` saves what `backward(ctx, *grads)` needs, as for register_autograd of torch.
    With `plain_backward` the gradient is that of the reference, by torch's autograd; with neither, it is
    refused where one is asked for.
    """
    name = schema.split("(", 1)[0]
    _fragment.define(schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
    _fragment.impl(name, reference, "CompositeExplicitAutograd")
    cuda = reference if gpu is None else gpu_forms.form(gpu, reference)
    if gpu is not None:
        _fragment.impl(name, cuda, "CUDA")
        cpu = gpu_forms.interpreted(cuda, reference) if gpu_forms.INTERPRETED else cpu
    if cpu is not None:
        _fragment.impl(name, cpu, "CPU")
    torch.library.register_fake(f"weft::{name}", fake, lib=_fragment)
    if backward is None:
        setup, backward = _plain(reference) if plain_backward else (None, _refusing(name))
    torch.library.register_autograd(f"weft::{name}", backward, setup_context=setup, lib=_fragment)
    overload = getattr(torch.ops.weft, name).default
    for on_gpu, form in ((False, cpu or reference), (True, cuda)):
        _direct[overload, on_gpu] = _Direct(form, _function(name, form, setup, backward))
    return overload


def eager(overload: Any, *arguments: Any) -> Any:
    """Return the operator's result, past the dispatcher when the call is an ordinary one on CPU or GPU.

    Not ordinary: under torch.compile or a tracer, a dispatch or function mode, a functorch transform, or
    with a subclass of Tensor. Those get the registered operator.
    """
    # A mode that counts, traces or fakes operators must see this one; past the dispatcher it would not.
    if torch.compiler.is_compiling() or _watched():
        refuse_transforms()
        return overload(*arguments)
    wanted = on_gpu = False
    for value in arguments:
        if isinstance(value, Tensor):
            # A subclass has its own __torch_function__ or __torch_dispatch__, which a direct call would step
            # over.
            if is_subclass(value) or not (value.is_cpu or value.is_cuda):
                return overload(*arguments)
            wanted, on_gpu = wanted or value.requires_grad, on_gpu or value.is_cuda
    direct = _direct[overload, on_gpu]
    if wanted and torch.is_grad_enabled():
        return direct.function.apply(*arguments)  # type: ignore[no-untyped-call]
    return direct.form(*arguments)


_PLAIN = (Tensor, torch.nn.Parameter)


def is_subclass(tensor: Tensor) -> bool:
    """Return whether a tensor is of a type of its own, whose values are not at hand."""
    return type(tensor) not in _PLAIN


def _watched() -> bool:
    """Return whether a mode or a transform is to see every operator."""
    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def _function(name: str, form: Form, setup: Form | None, backward: Form) -> type[Function]:
    """Return the operator as a torch.autograd.Function, with the same setup and backward."""

    def run(ctx: Any, *arguments: Any) -> Any:
        out = form(*arguments)
        if setup is not None:
            setup(ctx, arguments, out)
        return out

    return type(name, (Function,), {"forward": staticmethod(run), "backward": staticmethod(backward)})


def _plain(reference: Form) -> tuple[Form, Form]:
    """Return the setup and backward of an operator whose gradient is that of its reference."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.rest = [None if isinstance(each, Tensor) else each for each in inputs]
        ctx.save_for_backward(*(each if isinstance(each, Tensor) else None for each in inputs))

    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        given = [rest if saved is None else saved for saved, rest in zip(ctx.saved_tensors, ctx.rest)]
        return tuple(plain_gradients(reference, given, ctx.needs_input_grad, grads))

    return setup, backward


def _refusing(name: str) -> Form:
    """Return the backward of an operator that has none."""

    def backward(ctx: Any, *grads: Any) -> Any:
        refuse(f"weft::{name}", "are not there: use plain torch operators here")

    return backward


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Return the type that sums over values of `dtype` are kept in: float32 for the 16-bit types."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def as_indptr(indptr: Tensor) -> Tensor:
    """Return row pointers as int64, which is what every operator takes."""
    if indptr.dim() != 1 or not len(indptr):
        raise InputError(f"indptr has one entry more than rows, [rows + 1], got shape {list(indptr.shape)}")
    return indptr if indptr.dtype == torch.int64 else indptr.to(torch.int64)


def as_indices(indices: Tensor) -> Tensor:
    """Return indices as the operators take them, int32 or int64; torch reads uint8 as a mask."""
    if indices.dtype in (torch.int32, torch.int64):
        return indices
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
        raise InputError(f"indices must be whole numbers, got {indices.dtype}")
    return indices.to(torch.int64)


def as_clock(clock: Tensor) -> Tensor:
    """Return a clock (seed, epoch, step) as int64 [3], which is what every draw takes."""
    if clock.shape != (3,):
        raise InputError(f"expected a clock (seed, epoch, step) of shape [3], got {list(clock.shape)}")
    return clock if clock.dtype == torch.int64 else clock.to(torch.int64)


def index_dtype(bound: int) -> torch.dtype:
    """Return int32 where numbers below `bound` fit, else int64."""
    return torch.int32 if bound < 1 << 31 else torch.int64
