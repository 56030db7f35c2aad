"""The linear map of GAT with its scores: against torch's own products and gradients."""

import itertools

import pytest
import torch
from torch import Tensor

from weft.kernels import project
from weft.kernels.project import project_backward_op, project_op


def inputs(rows: int = 7, wide: int = 5, out: int = 6, heads: int = 2) -> list[Tensor]:
    torch.manual_seed(0)
    sizes = ((rows, wide), (out, wide), (out, 2 * heads))
    return [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]


@pytest.mark.parametrize(("rows", "wide", "out"), [(7, 5, 6), (7, 9, 6), (0, 3, 4), (1, 1, 1)])
def test_values_scores_and_gradients_are_those_of_torch(rows: int, wide: int, out: int) -> None:
    given = inputs(rows, wide, out)
    x, weight, columns = given
    value = x @ weight.t()
    expected = (value, *(value @ columns).chunk(2, dim=1))
    got = project(*given)
    grads = [torch.randn_like(one) for one in expected]
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)
    for size in (1, 2, 3):
        for wanted in itertools.combinations(given, size):
            ours = torch.autograd.grad(got, wanted, grads, retain_graph=True)
            theirs = torch.autograd.grad(expected, wanted, grads, retain_graph=True)
            for one, other in zip(ours, theirs, strict=True):
                torch.testing.assert_close(one, other)


def test_constants_take_no_gradient() -> None:
    x, weight, columns = inputs()
    value, first, _ = project(x.detach(), weight, columns.detach())
    (value.sum() + first.sum()).backward()
    assert weight.grad is not None
    assert x.grad is None
    with torch.no_grad():
        assert not project(x, weight, columns)[0].requires_grad


def test_the_gradient_of_the_value_is_left_alone() -> None:
    value, first, second = project(*inputs())
    value.retain_grad()
    (value.sum() + first.sum() + second.sum()).backward()
    assert value.grad is not None
    assert value.grad.eq(1).all()


def test_opcheck() -> None:
    given = inputs()
    torch.library.opcheck(project_op, tuple(given))
    plain = [x.detach() for x in given]
    for wanted in ([True, True, True], [False, True, False]):
        torch.library.opcheck(project_backward_op, (*plain, *project_op(*plain), wanted))


def test_compiles_without_graph_breaks() -> None:
    given = inputs()

    def model(*values: Tensor) -> Tensor:
        value, first, second = project(*values)
        return value.sum() + (first * second).sum()

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(model(*given), given)
    for one, other in zip(torch.autograd.grad(compiled(*given), given), expected, strict=True):
        torch.testing.assert_close(one, other)
