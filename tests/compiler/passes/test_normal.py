"""Normal forms: many ways to write an operator become one."""

import pytest
import torch
from tests.support.messages import assert_same, rewritten
from tests.support.programs import edges_of
from torch import Tensor, nn

EDGES = edges_of(7)
WIDE = torch.float64
U = torch.randn(EDGES.num_other, 4, dtype=WIDE, requires_grad=True)
V = torch.randn(EDGES.num_rows, 4, dtype=WIDE, requires_grad=True)
E = torch.randn(EDGES.num_edges, 1, dtype=WIDE, requires_grad=True)
ENDS = {"src": [U], "dst": [V]}
MAP = nn.Linear(4, 3).to(WIDE)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (lambda u, v: MAP(u), ["t", "mm", "add"]),
        (lambda u, v: u.contiguous().clone().view(-1, 2, 2).flatten(1), []),
        (lambda u, v: torch.sub(u, v, alpha=2), ["mul", "sub"]),
        (lambda u, v: (u * v).mean(-1, keepdim=True), ["mul", "sum", "div"]),
        (lambda u, v: (u * v).view(-1, 2, 2).mean((1, 2)), ["mul", "reshape", "sum", "div"]),
        (lambda u, v: torch.rsub(u, v), ["sub"]),
        (lambda u, v: u[:, 1:][:, :2].chunk(2, 1)[0] * 2, ["slice", "slice", "slice", "mul"]),
    ],
)
def test_operators_in_their_normal_forms(message: object, expected: list[str]) -> None:
    found = [name for name, _ in rewritten(message, "sum", "normal", **ENDS)]  # type: ignore[arg-type]
    assert found == [*expected, "reduced"]
    assert_same(message, EDGES, "sum", [*MAP.parameters()], without=[], **ENDS)  # type: ignore[arg-type]


def test_a_layer_norm_is_written_out() -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return nn.functional.layer_norm(u * v, (4,))

    assert "native_layer_norm" not in dict(rewritten(message, "sum", "normal", **ENDS))
    assert_same(message, EDGES, "max", **ENDS)


def test_options_of_operators_are_kept_or_left_to_torch() -> None:
    def scaled(u: Tensor, v: Tensor) -> Tensor:
        return torch.rsub(u, v, alpha=2).tanh()

    def every_second(u: Tensor, v: Tensor) -> Tensor:
        return (u[:, ::2].sum(-1, keepdim=True) * v).tanh()

    for message in (scaled, every_second):
        assert_same(message, EDGES, "sum", **ENDS)
