"""Random messages on odd graphs, compiled, against plain torch: values and all gradients."""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.messages import assert_same
from tests.support.programs import edges_of
from torch import Tensor

from weft.compiler.passes import PASSES

WIDTH = 4
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "leaky": lambda x: F.leaky_relu(x, 0.3),
    "elu": F.elu,
    "softplus": F.softplus,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "exp": lambda x: torch.exp(torch.tanh(x)),
    "root": lambda x: torch.sqrt(x.abs() + 0.5),
    "rsqrt": lambda x: torch.rsqrt(x * x + 0.5),
    "clamp": lambda x: x.clamp(-0.7, 0.9),
    "hardtanh": F.hardtanh,
    "square": lambda x: x**2,
    "cube": lambda x: x.tanh() ** 3,
    "log": lambda x: torch.log1p(x.abs()),
    "one less": lambda x: 1.0 - x,
    "scaled": lambda x: x / 3 + 0.5,
    "sum": lambda x: x.sum(-1, keepdim=True),
    "mean": lambda x: x.mean(-1, keepdim=True),
    "norm": lambda x: x.norm(dim=-1, keepdim=True),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "reversed": lambda x: torch.cat([x[:, 2:], x[:, :2]], -1) if x.shape[1] == WIDTH else x,
    "halves": lambda x: torch.cat([a * b for a, b in [x.chunk(2, -1)] * 2], -1) if x.shape[1] == WIDTH else x,
    "heads": lambda x: (
        (x.view(-1, 2, 2) * x.view(-1, 2, 2).sum(-1, keepdim=True)).flatten(1) if x.shape[1] == WIDTH else x
    ),
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda a, b: a / (b.abs() + 0.5),
    "maximum": torch.maximum,
    "where": lambda a, b: torch.where(a > b, a, -b),
    "masked": lambda a, b: a.masked_fill(b > 0.3, 0.1),
}


def message_of(
    seed: int, reduce: str, *, steps: int = 7
) -> tuple[Callable[..., Any], dict[str, Any], list[Tensor]]:
    """Return a message, what it is given, and the tensors that it captures."""
    draw = random.Random(seed)
    make = torch.Generator().manual_seed(seed)

    def tensor(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=make).requires_grad_()

    edges = edges_of(seed)
    given = {
        "src": [tensor(edges.num_other, WIDTH)],
        "dst": [tensor(edges.num_rows, WIDTH)],
        "edge": [tensor(edges.num_edges, 1)],
        "params": [tensor(WIDTH)],
    }
    wide, both, bias, heads = tensor(WIDTH, WIDTH), tensor(WIDTH, 2 * WIDTH), tensor(WIDTH), tensor(2, 2)
    plan = tuple(_step(draw, 4 + place) for place in range(steps))

    def message(*arguments: Tensor) -> Any:
        values = list(arguments)
        for op, first, second in plan:
            a, b = values[first], values[second]
            if op == "linear":
                made = (
                    F.linear(a.expand(-1, WIDTH) if a.shape[1] == 1 else a, wide, bias)
                    if a.dim() == 2
                    else a * 2
                )
            elif op == "joined" and a.dim() == b.dim() == 2 and a.shape[1] == b.shape[1] == WIDTH:
                made = F.linear(torch.cat([a, b], -1), both)
            else:
                made = UNARY[op](a) if op in UNARY and a.dim() == 2 else BINARY.get(op, torch.add)(a, b)
            values.append(made)
        whole = values[-1] + values[-2] + values[0] * values[1]
        if reduce != "softmax":
            return whole
        return (torch.tanh(whole).view(-1, 2, 2) * heads).sum(-1), whole.view(-1, 2, 2)

    return message, given, [wide, both, bias, heads]


def _step(draw: random.Random, known: int) -> tuple[str, int, int]:
    pick = draw.random()
    names = ["linear"] if pick < 0.12 else ["joined"] if pick < 0.24 else UNARY if pick < 0.62 else BINARY
    return draw.choice(list(names)), draw.randrange(known), draw.randrange(known)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["sum", "max", "min", "softmax"]))
def test_random_messages_equal_plain_torch(seed: int, reduce: str) -> None:
    message, inputs, captured = message_of(seed, reduce)
    assert_same(message, edges_of(seed), reduce, captured, **inputs)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["sum", "max", "softmax"]),
    st.sampled_from([name for name in PASSES if name != "normal"]),
)
def test_random_messages_without_a_pass(seed: int, reduce: str, without: str) -> None:
    message, inputs, captured = message_of(seed, reduce)
    assert_same(message, edges_of(seed), reduce, captured, without=[without], **inputs)
