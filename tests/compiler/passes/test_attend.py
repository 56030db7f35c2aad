"""A softmax that a message makes of its edges' rows becomes one reduction with the sum that it weighs."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.messages import forms_of, run_compiled
from tests.support.programs import edges_of
from torch import Tensor

from weft.compiler.compile import Compiled, compile_message
from weft.compiler.passes import PASSES
from weft.compiler.tracing.captures import captures
from weft.compiler.tracing.trace import Form, RowCount

utils = pytest.importorskip("torch_geometric.utils")
WIDE = torch.float64
Message = Callable[[Tensor, Tensor, Tensor, int], Tensor]

SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "of both ends": lambda u, v: (u * v).sum(-1),
    "of the source": lambda u, v: u.sum(-1),
    "of the destination": lambda u, v: v.sum(-1).tanh(),
    "large": lambda u, v: (u * v).sum(-1) * 300,
    "a feature": lambda u, v: u + v,
    "one": lambda u, v: (u * v).sum((1, 2)),
}
VALUES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "the source": lambda u, v: u,
    "both": lambda u, v: (u - v).sigmoid(),
    "halved": lambda u, v: u * 0.5,
    "one a head": lambda u, v: u[..., :1],
}


def attended(score: str, value: str, reduce: str = "sum") -> Message:
    def message(u: Tensor, v: Tensor, index: Tensor, count: int) -> Tensor:
        made = SCORES[score](u, v)
        share = utils.softmax(made, index, num_nodes=count).reshape(*made.shape, *[1] * (3 - made.dim()))
        return utils.scatter(share * VALUES[value](u, v), index, 0, count, reduce)  # type: ignore[no-any-return]

    return message


def compiled_of(
    message: Message, u: Tensor, v: Tensor, without: list[str]
) -> tuple[Compiled, Callable[..., Tensor]]:
    def called(u: Tensor, v: Tensor, index: Tensor) -> Tensor:
        return message(u, v, index, RowCount())

    forms = [*forms_of(src=[u], dst=[v]), Form.of("index", torch.zeros(0, dtype=torch.int64))]
    return compile_message(called, forms, "own", without=without), called


def check(message: Message, seed: int, without: list[str]) -> Compiled:
    """Hold a message to plain torch, and return it compiled."""
    edges, make = edges_of(seed), torch.Generator().manual_seed(seed)
    index = torch.repeat_interleave(torch.arange(edges.num_rows), edges.indptr.diff())
    u, v = (
        torch.randn(count, 2, 3, dtype=WIDE, generator=make).requires_grad_()
        for count in (edges.num_other, edges.num_rows)
    )
    made, called = compiled_of(message, u, v, without)
    have = run_compiled(made, made.inputs([u, v, index[:0]], captures(called, made.executed)), edges)
    want = message(u[edges.other.long()], v[index], index, edges.num_rows)
    torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)
    grad = torch.randn(want.shape, dtype=WIDE, generator=make)
    gradients = (
        torch.autograd.grad(out, [u, v], grad, allow_unused=True, materialize_grads=True)
        for out in (have, want)
    )
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)
    return made


def test_a_softmax_that_weighs_a_sum_is_one_reduction() -> None:
    made = check(attended("of both ends", "both"), 7, [])
    assert [each.kind for each in made.reductions] == ["softmax"]
    assert not made.inner
    assert len(check(attended("of both ends", "both"), 7, ["attend"]).inner) == 2


def test_one_that_weighs_a_maximum_is_none() -> None:
    made = check(attended("of both ends", "both", "max"), 7, [])
    assert "softmax" not in [each.kind for each in made.reductions]


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(sorted(SCORES)),
    st.sampled_from(sorted(VALUES)),
    st.lists(st.sampled_from(sorted(PASSES)), max_size=2),
)
def test_random_attention_equals_plain_torch(seed: int, score: str, value: str, without: list[str]) -> None:
    if score == "one" or score == "a feature":
        value = "both"
    check(attended(score, value), seed, without)
