"""Second derivatives: each operator against its definition in plain torch, in float64, or refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_checks import csr, values
from torch import Tensor

from weft import kernels
from weft.errors import GraphError
from weft.kernels import reference, reference_attention
from weft.kernels.attention import attention_backward_op, attention_op
from weft.kernels.extreme import extreme_op
from weft.kernels.registration import eager
from weft.kernels.second import first_derivatives_only, plain_gradients
from weft.kernels.softmax import edge_softmax_op

INDPTR, INDICES = csr(12, 9, 40)
REST = (None, 0.2, 0.0, None, None, 0, None, None, None)


def inputs(*shapes: tuple[int, ...]) -> list[Tensor]:
    make = torch.Generator().manual_seed(3)
    return [torch.randn(shape, dtype=torch.float64, generator=make).requires_grad_() for shape in shapes]


def second(form: Callable[..., Any], given: list[Tensor]) -> list[Tensor | None]:
    """Return the gradients of squared gradients of a weighted sum, which needs no gradient above it."""
    made = form(*given)
    made = made[0] if isinstance(made, tuple) else made
    weight = torch.linspace(-3, 3, made.numel(), dtype=made.dtype).reshape(made.shape)
    first = torch.autograd.grad((made * weight).sum(), given, create_graph=True)
    return list(torch.autograd.grad(sum((g**2).sum() for g in first), given, allow_unused=True))


def attention(kind: int, a: bool) -> Callable[..., tuple[Any, Any, list[tuple[int, ...]]]]:
    tail = () if kind == 0 else (3,)

    def arguments(src: Tensor, dst: Tensor, value: Tensor, *rest: Tensor) -> tuple[Any, ...]:
        return kind, INDPTR, INDICES, src, dst, rest[0] if a else None, value, *REST

    return lambda: (
        lambda *given: eager(attention_op, *arguments(*given)),
        lambda *given: reference_attention.forward(*arguments(*given)),
        [(12, 2, *tail), (9, 2, *tail), (12, 2, 4), *([(2, 3)] if a else [])],
    )


OPERATORS: dict[str, Callable[[], tuple[Any, Any, list[tuple[int, ...]]]]] = {
    "softmax": lambda: (
        lambda s: kernels.edge_softmax(INDPTR, s),
        lambda s: reference.edge_softmax(INDPTR, s),
        [(40, 2)],
    ),
    "softmax by the dispatcher": lambda: (
        lambda s: edge_softmax_op(INDPTR, s),
        lambda s: reference.edge_softmax(INDPTR, s),
        [(40, 2)],
    ),
    "max": lambda: (
        lambda x: kernels.extreme(INDPTR, INDICES, x**3, "max"),
        lambda x: reference.extreme(INDPTR, INDICES, x**3, True)[0],
        [(12, 3)],
    ),
    "min by the dispatcher": lambda: (
        lambda x: extreme_op(INDPTR, INDICES, x**3, False, None, None),
        lambda x: reference.extreme(INDPTR, INDICES, x**3, False)[0],
        [(12, 3)],
    ),
    "sum": lambda: (
        lambda x, w: kernels.spmm(INDPTR, INDICES, x, w),
        lambda x, w: reference.spmm(INDPTR, INDICES, None, x, w, None, None, False),
        [(12, 3), (40,)],
    ),
    "project": lambda: (
        lambda *given: torch.cat(kernels.project(*given), 1),
        lambda x, w, c: torch.cat([x @ w.t(), x @ w.t() @ c], 1),
        [(12, 3), (6, 3), (6, 4)],
    ),
    "additive attention": attention(0, a=False),
    "gatv2 attention": attention(reference_attention.GATV2, a=True),
    "dot attention": attention(reference_attention.DOT, a=False),
    "attention that keeps": lambda: (
        lambda s, d, v: kernels.attention(INDPTR, INDICES, s, d, v),
        lambda s, d, v: reference_attention.forward(0, INDPTR, INDICES, s, d, None, v, *REST),
        [(12, 2), (9, 2), (12, 2, 4)],
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_of_gradients_are_those_of_the_definition(name: str) -> None:
    form, plain, shapes = OPERATORS[name]()
    found, expected = second(form, inputs(*shapes)), second(plain, inputs(*shapes))
    assert any(each is not None and bool(each.abs().sum() > 0.1) for each in expected)
    for got, want in zip(found, expected, strict=True):
        nothing = torch.zeros(())
        torch.testing.assert_close(
            *(nothing if each is None or not each.any() else each for each in (got, want)), check_dtype=False
        )


@pytest.mark.parametrize("call", [eager, lambda operator, *given: operator(*given)])
def test_an_operator_without_a_gradient_refuses_it_by_name(call: Any) -> None:
    src, dst, value, grad = values(12, 2, grad=True), values(9, 2), values(12, 2, 4), values(9, 2, 4)
    _, top, total = eager(attention_op, 0, INDPTR, INDICES, src, dst, None, value, *REST)
    pointers = kernels.transpose_csr(INDPTR, INDICES, 12)
    given = (0, INDPTR, INDICES, src, dst, None, value, *REST[:-3], *pointers, top, total, None, grad)
    made = call(attention_backward_op, *given, [True, False, False, False, False])[0]
    with pytest.raises(GraphError, match="weft::attention_backward has first derivatives alone"):
        made.sum().backward()


class _Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @first_derivatives_only("the square", "need x * x")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor]:
        return (2 * ctx.saved_tensors[0] * grad,)


def test_a_function_with_first_derivatives_only_refuses_to_make_a_graph() -> None:
    x = torch.tensor([3.0], requires_grad=True)
    with pytest.raises(GraphError, match=r"^the square has first derivatives alone; .* need x \* x$"):
        torch.autograd.grad(_Squared.apply(x).sum(), x, create_graph=True)
    _Squared.apply(x).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 6.0


def test_plain_gradients_do_not_pass_through_arguments_made_of_others() -> None:
    x = torch.tensor(2.0, requires_grad=True)
    y = x * x
    found = plain_gradients(lambda a, b: a * b, [x, y], [True, True], [torch.tensor(1.0)])
    assert [each.item() for each in found if each is not None] == [4.0, 2.0]
