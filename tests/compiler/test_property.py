"""Random messages on odd graphs, compiled, against plain torch: values and all gradients."""

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.messages import assert_same, compiled_result
from tests.support.programs import edges_of
from torch import Tensor

from weft.compiler.passes import PASSES
from weft.compiler.programs.program import Edges

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
    "einsum": lambda x: (
        torch.einsum("ehf,ehf,eh->ehf", x.view(-1, 2, 2), x.view(-1, 2, 2), x[:, :2]).flatten(1)
        if x.shape[1] == WIDTH
        else x
    ),
    "joined sum": lambda x: x * torch.cat([x, x.tanh()], -1).sum(-1, keepdim=True),
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
    seed: int, reduce: str, *, steps: int = 7, edges: Edges | None = None
) -> tuple[Callable[..., Any], dict[str, Any], list[Tensor]]:
    """Return a message, what it is given, and the tensors that it captures."""
    draw = random.Random(seed)
    make = torch.Generator().manual_seed(seed)

    def tensor(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=make).requires_grad_()

    edges = edges_of(seed) if edges is None else edges
    given = {
        "src": [tensor(edges.num_other, WIDTH)],
        "dst": [tensor(edges.num_rows, WIDTH)],
        "edge": [tensor(edges.num_edges, 1), torch.arange(edges.num_edges) % 3],
        "params": [tensor(WIDTH)],
    }
    wide, both, bias, heads = tensor(WIDTH, WIDTH), tensor(WIDTH, 2 * WIDTH), tensor(WIDTH), tensor(2, 2)
    maps, matrices = tensor(2, 2, 2), tensor(1, WIDTH * WIDTH)
    table, tables = tensor(3, WIDTH, WIDTH), tensor(3, 2, 2, 2)
    plan = tuple(_step(draw, 4 + place) for place in range(steps))

    def message(*arguments: Tensor) -> Any:
        values, kind = [*arguments[:3], arguments[4]], arguments[3]
        for op, first, second in plan:
            a, b = values[first], values[second]
            rows = a.dim() == 2 and a.shape[1] == WIDTH
            if op == "linear":
                made = (
                    F.linear(a.expand(-1, WIDTH) if a.shape[1] == 1 else a, wide, bias)
                    if a.dim() == 2
                    else a * 2
                )
            elif op == "a map a head" and rows:
                made = torch.einsum("ehf,hfo->eho", a.view(-1, 2, 2), maps).flatten(1)
            elif op == "one matrix per edge" and rows:
                made = torch.einsum("ei,eio->eo", a, (values[2] @ matrices).view(-1, WIDTH, WIDTH))
            elif op == "by relation" and rows:
                made = torch.einsum("ef,efo->eo", a, table[kind])
            elif op == "by relation and head" and rows:
                made = torch.einsum("ehf,ehfo->eho", a.view(-1, 2, 2), tables[kind]).flatten(1)
            elif op == "scores" and rows:
                made = torch.cat([(a.view(-1, 2, 2) * heads).sum(-1)] * 2, -1)
            elif op == "joined" and a.dim() == b.dim() == 2 and a.shape[1] == b.shape[1] == WIDTH:
                made = F.linear(torch.cat([a, b], -1), both)
            else:
                made = UNARY[op](a) if op in UNARY and a.dim() == 2 else BINARY.get(op, torch.add)(a, b)
            values.append(made)
        whole = values[-1] + values[-2] + values[0] * values[1]
        if reduce != "softmax":
            return whole
        return (torch.tanh(whole).view(-1, 2, 2) * heads).sum(-1), whole.view(-1, 2, 2)

    return message, given, [wide, both, bias, heads, maps, matrices, table, tables]


MAPS = (
    *("linear", "joined", "a map a head", "one matrix per edge"),
    *("by relation", "by relation and head", "scores"),
)


def _step(draw: random.Random, known: int) -> tuple[str, int, int]:
    pick = draw.random()
    if pick < 0.35:
        return MAPS[int(pick * 20)], draw.randrange(known), draw.randrange(known)
    return draw.choice(list(UNARY if pick < 0.65 else BINARY)), draw.randrange(known), draw.randrange(known)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["sum", "max", "min", "softmax"]))
def test_random_messages_equal_plain_torch(seed: int, reduce: str) -> None:
    message, inputs, captured = message_of(seed, reduce)
    assert_same(message, edges_of(seed), reduce, captured, **inputs)


REWRITES = [name for name in PASSES if name != "normal"]
"""The others rely on normal forms: without these they find little, and nothing wrong."""


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["sum", "max", "softmax"]), st.sampled_from([*PASSES]))
def test_random_messages_without_a_pass(seed: int, reduce: str, without: str) -> None:
    message, inputs, captured = message_of(seed, reduce)
    assert_same(message, edges_of(seed), reduce, captured, without=[without], **inputs)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["sum", "min", "softmax"]), st.sampled_from([None, *PASSES]))
def test_random_messages_with_one_pass_or_none(seed: int, reduce: str, alone: str | None) -> None:
    message, inputs, captured = message_of(seed, reduce)
    without = [name for name in PASSES if name != alone and (name != "normal" or seed % 2)]
    assert_same(message, edges_of(seed), reduce, captured, without=without, **inputs)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["sum", "max", "softmax"]))
def test_random_messages_have_the_same_bits_on_any_number_of_threads(seed: int, reduce: str) -> None:
    edges = edges_of(seed * 10 + 1, num_rows=300, num_other=200, num_edges=6000)
    message, inputs, captured = message_of(seed, reduce, edges=edges)
    leaves = [t for tensors in (*inputs.values(), captured) for t in tensors if t.requires_grad]
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        try:
            out = compiled_result(message, edges, reduce, **inputs)
            found.append([out, *torch.autograd.grad(out.sum(), leaves, allow_unused=True)])
        finally:
            torch.set_num_threads(before)
    for other in found[1:]:
        assert all(a is None or torch.equal(a, b) for a, b in zip(found[0], other))


HOISTED: dict[str, Callable[[Tensor], Tensor]] = {
    "root": torch.sqrt,
    "log": torch.log,
    "inverse": lambda x: 1.0 / x,
    "power": lambda x: x**0.3,
    "length": lambda x: (x * x).sum(-1, keepdim=True).sqrt(),
    "share": lambda x: x / x.sum(-1, keepdim=True),
    "gate": lambda x: torch.tanh(x) * x,
    "rows": lambda x: x,
}


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(sorted(HOISTED)),
    st.sampled_from(["sum", "max"]),
    st.sampled_from([0.0, math.nan, math.inf]),
)
def test_rows_that_no_edge_reads_do_not_reach_a_gradient(
    seed: int, name: str, reduce: str, missing: float
) -> None:
    edges, hoisted = edges_of(seed), HOISTED[name]
    make = torch.Generator().manual_seed(seed)
    u, v = (
        torch.rand(count, WIDTH, dtype=torch.float64, generator=make) + 0.5
        for count in (edges.num_other, edges.num_rows)
    )
    u[[each for each in range(len(u)) if each not in edges.other.tolist()]] = missing
    v[edges.indptr.diff() == 0] = missing
    first, second = (
        torch.rand(WIDTH, WIDTH, dtype=torch.float64, generator=make).requires_grad_() for _ in range(2)
    )
    given = {"src": [u.requires_grad_()], "dst": [v.requires_grad_()]}
    assert_same(
        lambda a, b: hoisted(a @ first) * hoisted(b @ second), edges, reduce, [first, second], **given
    )


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(sorted(HOISTED)),
    st.sampled_from(["sum", "max"]),
    st.sampled_from([0.0, math.nan]),
)
def test_nodes_without_edges_do_not_reach_a_gradient_where_one_tensor_is_at_both_ends(
    seed: int, name: str, reduce: str, missing: float
) -> None:
    edges, hoisted = edges_of(seed, num_rows=9, num_other=9, num_edges=12), HOISTED[name]
    make = torch.Generator().manual_seed(seed)
    x = torch.rand(9, WIDTH, dtype=torch.float64, generator=make) + 0.5
    unread = [each for each in range(9) if each not in edges.other.tolist()]
    # What is not finite spoils what reads it; 0 does so only under the operator, here at the sources.
    x[[each for each in unread if not missing or not edges.indptr.diff()[each]]] = missing
    first, second = (
        torch.rand(WIDTH, WIDTH, dtype=torch.float64, generator=make).requires_grad_() for _ in range(2)
    )
    given = {"src": [x.requires_grad_()], "dst": [x]}
    assert_same(lambda a, b: hoisted(a @ first) * (b @ second + 1), edges, reduce, [first, second], **given)
