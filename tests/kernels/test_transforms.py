"""Gradients of torch.func around weft's operators: refused in one line, and nothing of them stays."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import weft
from weft import kernels
from weft.errors import GraphError
from weft.graph.message.block import Block

X = torch.arange(12.0).reshape(4, 3)


def block() -> Block:
    return weft.Graph.from_edges(torch.tensor([[0, 1, 2, 3], [1, 1, 3, 0]]), x=X).block()


def message(u: Tensor, v: Tensor) -> Tensor:
    return torch.tanh(u - v) * u


CALLS: dict[str, Callable[[Block, Tensor], Tensor]] = {
    "propagate": lambda own, x: own.propagate(message, [x], [x]),
    "aggregate": lambda own, x: own.aggregate(x, "mean"),
    "kernel": lambda own, x: kernels.spmm(own.indptr, own.indices, x),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_tangent_is_refused_not_zero_and_the_block_goes_on(call: Callable[[Block, Tensor], Tensor]) -> None:
    own = block()
    with pytest.raises(GraphError, match="no jvp and jacfwd around"):
        torch.func.jvp(lambda x: call(own, x), (X,), (torch.ones_like(X),))
    with pytest.raises(GraphError, match="no grad, vjp and jacrev around"):
        torch.func.grad(lambda x: call(own, x).sum())(X)
    torch.testing.assert_close(call(own, X), call(block(), X))
