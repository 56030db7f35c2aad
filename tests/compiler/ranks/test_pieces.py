"""Messages over sources that come in pieces: which gradients read sources, and what is read at all."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from weft.compiler.compile import compile_message
from weft.compiler.programs.program import trimmed
from weft.compiler.ranks.pieces import piece_gradients, pieces
from weft.compiler.tracing.trace import Form

WEIGHT = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)

Case = tuple[Callable[..., Any], str, bool, bool]

CASES: dict[str, Case] = {
    # a message, its reduction, whether the values of edges are learned, whether backward reads sources
    "rows": (lambda u, v, e: u, "sum", False, False),
    "mapped rows": (lambda u, v, e: u @ WEIGHT, "sum", False, False),
    "weighed rows": (lambda u, v, e: u * e, "sum", False, False),
    "learned weights": (lambda u, v, e: u * e, "sum", True, True),
    "a factor of the row": (lambda u, v, e: u * v.sigmoid(), "sum", False, False),
    "differences": (lambda u, v, e: (u - v) * e, "sum", False, False),
    "a bent sum": (lambda u, v, e: (u + v).relu(), "sum", False, True),
    "an extreme": (lambda u, v, e: u, "max", False, True),
    "attention": (lambda u, v, e: (v.sum(1), u), "softmax", False, True),
}


def compiled(name: str) -> tuple[Any, list[Tensor]]:
    message, reduce, learned, _ = CASES[name]
    ends = [torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    given = [*ends, torch.randn(5, 1, dtype=torch.float64, requires_grad=learned)]
    forms = [Form.of(role, each) for role, each in zip(("source", "destination", "edge"), given)]  # type: ignore[arg-type]
    made = compile_message(message, forms, reduce)
    captured = [WEIGHT] * len(made.captured)
    return made, [*given, *captured]


@pytest.mark.parametrize("name", CASES)
def test_gradients_say_whether_sources_are_fetched_again(name: str) -> None:
    made, inputs = compiled(name)
    cut = pieces(made)
    assert cut is not None
    assert piece_gradients(cut.program, cut.wanted(inputs)).reads_sources == CASES[name][3]


@pytest.mark.parametrize("name", CASES)
def test_without_gradients_nothing_is_fetched_again(name: str) -> None:
    cut = pieces(compiled(name)[0])
    assert cut is not None
    found = piece_gradients(cut.program, (False,) * len(cut.loads))
    assert (found.of_rows, found.of_others, found.reads_sources) == (None, None, False)


def test_a_program_keeps_the_loads_that_it_reads() -> None:
    cut = pieces(compiled("weighed rows")[0])
    assert cut is not None
    of_sources = piece_gradients(cut.program, (True, False)).of_others
    assert of_sources is not None
    program, kept = of_sources
    assert [load.source for load in program.loads] == ["edge", "other"]  # the numbers, and the gradient
    assert trimmed(program) == (program, (0, 1))
    assert len(kept) == 2


def test_several_reductions_have_no_pieces() -> None:
    def message(u: Tensor, v: Tensor) -> Tensor:
        return torch.cat([u * v, (u + v).exp()], 1)

    forms = [Form("source", torch.Size([4]), torch.float64, torch.device("cpu"))]
    forms.append(Form("destination", torch.Size([4]), torch.float64, torch.device("cpu")))
    assert pieces(compile_message(message, forms, "max")) is None
