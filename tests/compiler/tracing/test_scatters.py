"""Messages that reduce their edges themselves: scatters, softmax of a row, and what is made of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.support.messages import forms_of, run_compiled
from tests.support.programs import edges_of
from torch import Tensor

from weft.compiler.compile import Compiled, compile_message
from weft.compiler.description import described
from weft.compiler.programs.cost import EdgeCounts
from weft.compiler.tracing.captures import NotCompiled, captures
from weft.compiler.tracing.trace import Form, RowCount

utils = pytest.importorskip("torch_geometric.utils")
WIDE = torch.float64
EDGES = edges_of(7)
INDEX = torch.repeat_interleave(torch.arange(EDGES.num_rows), EDGES.indptr.diff())
torch.manual_seed(1)
U = torch.randn(EDGES.num_other, 2, 3, dtype=WIDE, requires_grad=True)
V = torch.randn(EDGES.num_rows, 2, 3, dtype=WIDE, requires_grad=True)
Message = Callable[[Tensor, Tensor, Tensor, int], Tensor]


def total(values: Tensor, index: Tensor, count: int, reduce: str = "sum") -> Tensor:
    return utils.scatter(values, index, 0, count, reduce)  # type: ignore[no-any-return]


def attention(u: Tensor, v: Tensor, index: Tensor, count: int) -> Tensor:
    alpha = utils.softmax((u * v).sum(-1), index, num_nodes=count)
    return total((u - v) * alpha.view(-1, 2, 1) * 0.5, index, count)


def by_feature(u: Tensor, v: Tensor, index: Tensor, count: int) -> Tensor:
    return total(u * utils.softmax(u + v, index, None, count), index, count, "mean")


def largest_share(u: Tensor, v: Tensor, index: Tensor, count: int) -> Tensor:
    alpha = utils.softmax((u * v).sum(-1), index, num_nodes=count)
    return total(alpha.unsqueeze(-1) * u, index, count, "max")


def centred(u: Tensor, v: Tensor, index: Tensor, count: int) -> Tensor:
    mean = total(u, index, count, "mean")
    return total((u - mean.index_select(0, index)).abs() * v, index, count).flatten(1)


def several(u: Tensor, v: Tensor, index: Tensor, count: int) -> Tensor:
    mean, square = (total(each, index, count, "mean") for each in (u * v, (u * v) ** 2))
    degree = utils.degree(index, count, u.dtype).view(-1, 1, 1)
    spread = (square - mean * mean).clamp(min=1e-5).sqrt()
    joined = torch.cat([mean, spread, total(u * v, index, count, "min")], dim=-1)
    return joined * torch.log(degree + 1)


def other_scores(u: Tensor, v: Tensor, index: Tensor, count: int) -> Tensor:
    """Shares of one value of all heads: they are not the first axes of what they weigh."""
    alpha = utils.softmax((u * v).sum(1), index, num_nodes=count)  # [E, 3]
    return total(u * alpha.unsqueeze(1), index, count)


def scores_of(u: Tensor, v: Tensor, index: Tensor, count: int) -> Tensor:
    """Scores of each head, as far below the largest of their row as they are."""
    scores = (u * v).sum(-1)
    return scores - total(scores, index, count, "max")[index]


def smoothed(u: Tensor, v: Tensor, index: Tensor, count: int) -> Tensor:
    """Shares of a total that is larger than the sum: less than a softmax."""
    grown = scores_of(u, v, index, count).exp()
    return total(u * (grown / (total(grown, index, count) + 0.5)[index]).unsqueeze(-1), index, count)


def of_the_largest(u: Tensor, v: Tensor, index: Tensor, count: int) -> Tensor:
    """Shares of the largest, not of the sum."""
    grown = scores_of(u, v, index, count).exp()
    return total(u * (grown / total(grown, index, count, "max")[index]).unsqueeze(-1), index, count)


def less_their_own(u: Tensor, v: Tensor, index: Tensor, count: int) -> Tensor:
    """A softmax of scores less a number of each edge, which is no number of the row."""
    grown = ((u * v).sum(-1) - (u + v).sum(-1).tanh()).exp()
    return total(u * (grown / total(grown, index, count)[index]).unsqueeze(-1), index, count)


def along_the_second(u: Tensor, v: Tensor, index: Tensor, count: int) -> Tensor:
    u, v = u.movedim(0, 1), v.movedim(0, 1)  # [2, E, 3]
    alpha = utils.softmax(u * v, index, num_nodes=count, dim=1)
    return utils.scatter((u - v).tanh() * alpha, index, 1, count, "max").movedim(1, 0)  # type: ignore[no-any-return]


def scattered_shares(u: Tensor, v: Tensor, index: Tensor, count: int) -> Tensor:
    """Shares that were repeated and reshaped: they are those of the heads no more."""
    alpha = utils.softmax((u * v).sum(-1), index, num_nodes=count)  # [E, 2]
    return total(u * alpha.unsqueeze(1).expand(-1, 3, 2).reshape(-1, 2, 3), index, count)


def at_least_zero(u: Tensor, index: Tensor, count: int) -> Tensor:
    """The largest of a row and of what was there before."""
    places = index.view(-1, 1, 1).expand_as(u)
    return u.new_zeros(count, 2, 3).scatter_reduce(0, places, u, "amax", include_self=True)


MESSAGES: dict[str, tuple[Message, int, int]] = {
    "attention": (attention, 0, 1),
    "by_feature": (by_feature, 0, 1),
    "largest_share": (largest_share, 2, 1),
    "centred": (centred, 1, 1),
    "several": (several, 0, 3),
    "other_scores": (other_scores, 2, 1),
    "smoothed": (smoothed, 2, 1),
    "of_the_largest": (of_the_largest, 2, 1),
    "less_their_own": (less_their_own, 1, 1),
    "along_the_second": (along_the_second, 2, 1),
}
"""By name, how many reductions go before, and how many there are then."""


def made_of(message: Message, without: tuple[str, ...] = ()) -> tuple[Compiled, Callable[..., Tensor]]:
    def called(u: Tensor, v: Tensor, index: Tensor) -> Tensor:
        return message(u, v, index, RowCount())

    forms = [*forms_of(src=[U], dst=[V]), Form.of("index", INDEX)]
    return compile_message(called, forms, "own", without=without), called


@pytest.mark.parametrize("without", [(), ("attend",), ("parts", "behind", "terms")])
@pytest.mark.parametrize("name", MESSAGES)
def test_what_a_message_reduces_itself_equals_plain_torch(name: str, without: tuple[str, ...]) -> None:
    message, inner, count = MESSAGES[name]
    made, called = made_of(message, without)
    if not without:
        assert (len(made.inner), len(made.reductions)) == (inner, count)
        assert all(each.program is not None for each in made.reductions), "all on programs"
    inputs = made.inputs([U, V, INDEX[:0]], captures(called, made.executed))
    have = run_compiled(made, inputs, EDGES)
    want = message(U[EDGES.other.long()], V[INDEX], INDEX, EDGES.num_rows)
    torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)
    grad = torch.randn(want.shape, dtype=WIDE, generator=torch.Generator().manual_seed(3))
    for ours, theirs in zip(*(torch.autograd.grad(out, [U, V], grad) for out in (have, want)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


def test_shares_that_were_reshaped_are_not_those_of_the_heads() -> None:
    made, called = made_of(scattered_shares)
    inputs = made.inputs([U, V, INDEX[:0]], captures(called, made.executed))
    want = scattered_shares(U[EDGES.other.long()], V[INDEX], INDEX, EDGES.num_rows)
    torch.testing.assert_close(run_compiled(made, inputs, EDGES), want, rtol=1e-9, atol=1e-9)


def test_all_reductions_are_described() -> None:
    made, called = made_of(largest_share)
    inputs = made.inputs([U, V, INDEX[:0]], captures(called, made.executed))
    sizes = EdgeCounts(EDGES.num_rows, EDGES.num_other, EDGES.num_edges)
    found = described(made, inputs, sizes, torch.device("cpu"), lambda program: "")
    assert [each.reduce for each in found.kernels] == ["max", "sum", "max"]
    assert {place for each in found.operators for place in each.kernels} == {0, 1, 2}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (lambda u, v, index, count: total(u * index.view(-1, 1, 1), index, count), "numbers of nodes"),
        (lambda u, v, index, count: total(u[index], index, count), "numbers of nodes|other edges"),
        (lambda u, v, index, count: total(u / count, index, count), "number of edges or rows is used"),
        (
            lambda u, v, index, count: total(u, index, count) / float(count),
            "computes with the number of dest",
        ),
        (lambda u, v, index, count: total(u, index, count, "mul"), "not known|numbers of nodes"),
        (lambda u, v, index, count: at_least_zero(u, index, count), "not known"),
        (lambda u, v, index, count: u.new_zeros(count, 2, 3).index_add(0, index, u, alpha=2), "is scaled"),
        (lambda u, v, index, count: u.new_ones(count, 2, 3).index_add(0, index, u), "numbers of nodes"),
        (lambda u, v, index, count: u, "row per destination"),
        (lambda u, v, index, count: total(u, index, None), "reads the values of a tensor"),
    ],
)
def test_what_cannot_be_compiled_says_why(message: Any, reason: str) -> None:
    with pytest.raises(NotCompiled, match=reason):
        made_of(message)
