"""Calls that go around torch's dispatcher, and those that must not."""

from typing import Any

import pytest
import torch
from kernel_checks import csr, values
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from weft import kernels
from weft.kernels import native
from weft.kernels.attention import attention_op
from weft.kernels.registration import accumulator, eager, index_dtype
from weft.kernels.spmm import spmm_op

PLAIN = (None, None, None, True, False, None, None, None)


class _Watch(TorchDispatchMode):
    """Notes the names of all operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_direct_call_gives_the_result_and_gradient_of_the_registered_operator() -> None:
    indptr, indices = csr(30, 25, 200)
    x = values(30, 7, grad=True)
    direct = eager(spmm_op, indptr, indices, None, x, *PLAIN)
    registered = spmm_op(indptr, indices, None, x, *PLAIN)
    assert torch.equal(direct, registered)
    assert "Spmm" in type(direct.grad_fn).__name__ or "spmm" in type(direct.grad_fn).__name__
    up = values(25, 7)
    assert torch.equal(*(torch.autograd.grad(out, x, up)[0] for out in (direct, registered)))


def test_attention_goes_around_the_dispatcher_too() -> None:
    indptr, indices = csr(30, 25, 200)
    scores, value = values(30, 2, grad=True), values(30, 2, 4, grad=True)
    out = kernels.attention(indptr, indices, scores, scores[:25], value)
    assert out.grad_fn is not None
    assert out.grad_fn.name() == "attention_keepingBackward"
    out.sum().backward()
    assert value.grad is not None
    registered = attention_op(
        0, indptr, indices, scores, scores[:25], None, value, None, 0.2, 0.0, None, None, 0, None, None, None
    )[0]
    assert torch.equal(out, registered)
    assert torch.equal(torch.autograd.grad(registered.sum(), value)[0], value.grad)


def test_no_gradient_is_recorded_where_none_is_wanted() -> None:
    indptr, indices = csr(30, 25, 200)
    x = values(30, 7, grad=True)
    with torch.no_grad():
        assert not kernels.spmm(indptr, indices, x).requires_grad
    assert not kernels.spmm(indptr, indices, x.detach()).requires_grad


def test_a_mode_sees_the_operator_and_its_backward() -> None:
    indptr, indices = csr(30, 25, 200)
    x = values(30, 7, grad=True)
    with _Watch() as watch:
        kernels.spmm(indptr, indices, x).sum().backward()
    assert watch.seen.count("weft.spmm.default") == 2
    assert "weft.transpose.default" in watch.seen


def test_fake_tensors_give_shapes_without_computing() -> None:
    with FakeTensorMode() as mode:
        indptr, indices = torch.empty(26, dtype=torch.int64), torch.empty(200, dtype=torch.int32)
        out = kernels.spmm(indptr, indices, torch.empty(30, 7))
    assert mode is not None
    assert out.shape == (25, 7)


def test_other_devices_use_the_reference() -> None:
    indptr, indices = csr(30, 25, 200)
    out = kernels.spmm(indptr.to("meta"), indices.to("meta"), values(30, 7).to("meta"))
    assert out.device.type == "meta"
    assert out.shape == (25, 7)


def test_subclasses_of_tensor_keep_their_say() -> None:
    class Loud(torch.Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Loud.calls += func is spmm_op
            return super().__torch_function__(func, types, args, kwargs or {})

    indptr, indices = csr(30, 25, 200)
    kernels.spmm(indptr, indices, values(30, 7).as_subclass(Loud))  # type: ignore[no-untyped-call]
    assert Loud.calls == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_sums_of_16_bit_types_are_kept_in_float32(dtype: torch.dtype) -> None:
    assert accumulator(dtype) == (dtype if dtype == torch.float64 else torch.float32)
    assert dtype in native.DTYPE_CODES


def test_indices_are_small_where_they_fit() -> None:
    assert index_dtype(2**31 - 1) == torch.int32
    assert index_dtype(2**31) == torch.int64
