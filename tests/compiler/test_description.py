"""Descriptions: the numbers of operators and kernels on a block of known sizes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.support.messages import forms_of
from torch import Tensor, nn

from weft.compiler.compile import compile_message
from weft.compiler.description import Description, described, written
from weft.compiler.native import backend as cpu
from weft.compiler.programs.cost import EdgeCounts, Work
from weft.compiler.tracing.captures import captures

SIZES = EdgeCounts(rows=10, others=20, edges=100)
RUNS: Callable[[Any], str] = lambda program: ""  # noqa: E731


def rows(wide: int = 4) -> dict[str, list[Tensor]]:
    return {"src": [torch.randn(20, wide, requires_grad=True)], "dst": [torch.randn(10, wide)]}


def description(message: Any, reduce: str = "sum", obstacle: Any = RUNS, device: str = "cpu") -> Description:
    given = rows()
    made = compile_message(message, forms_of(**given), reduce)
    inputs = made.inputs([*given["src"], *given["dst"]], captures(message, made.executed))
    return described(made, inputs, SIZES, torch.device(device), obstacle)


def test_a_map_of_both_ends_moves_from_edges_to_nodes() -> None:
    both = nn.Linear(8, 3, bias=False)

    def message(there: Tensor, here: Tensor) -> Tensor:
        return both(torch.cat([there, here], 1)).sigmoid()  # type: ignore[no-any-return]

    before = written(message, forms_of(**rows()), "sum", SIZES)
    (product,) = [each for each in before if each.movement == "dense"]
    assert (product.rows, product.shape) == (100, (3,))
    assert product.cost == Work(4 * (100 * 8 + 8 * 3), 4 * 100 * 3, 2 * 100 * 8 * 3)
    gathers = [each.cost for each in before if each.movement == "gather"]
    assert gathers == [Work(4 * 100 * 4, 4 * 100 * 4)] * 2

    after = description(message)
    assert [(each.where, each.rows) for each in after.operators if each.name == "mm"] == [
        ("source", 20),
        ("destination", 10),
    ]
    fused = {each.name for each in after.operators if each.kernels}
    assert fused == {"add", "sigmoid", "reduce by sum"}
    assert all(each.cost == Work() for each in after.operators if each.kernels)
    (kernel,) = after.kernels
    assert (kernel.name, kernel.steps) == ("program", ("add", "sigmoid"))
    assert after.cost.operations == kernel.forward.operations + 2 * 4 * 3 * (20 + 10)
    assert kernel.backward is not None
    assert 0 < kernel.again < kernel.backward.operations


def test_backward_by_winners_is_told_as_it_runs_on_a_gpu() -> None:
    both = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 5))

    def message(there: Tensor, here: Tensor) -> Tensor:
        return both(torch.cat([here, there - here], 1))  # type: ignore[no-any-return]

    cpu, gpu = (description(message, "max", device=each).kernels[0] for each in ("cpu", "cuda"))
    assert cpu.backward is not None
    assert gpu.backward is not None
    products = 2 * 6 * 5 * 100
    assert cpu.backward.operations > 4 * products
    assert products < gpu.backward.operations < 3 * products
    assert (gpu.stored, gpu.kept - cpu.kept) == ((), 4 * 5 * 10)  # whose edges attain the largest value


def test_a_kernel_of_the_layers_is_named_and_has_its_own_backward() -> None:
    (kernel,) = description(lambda there, here: there).kernels
    assert kernel.name == "spmm"
    assert kernel.backward is None
    assert kernel.kept > 0


def test_what_no_backend_runs_says_why_and_costs_as_operators_do() -> None:
    found = description(lambda there, here: there * here, obstacle=lambda program: "not here")
    assert found.kernels[0].reason == "not here"
    assert not any(each.kernels for each in found.operators)
    assert found.cost == sum((each.cost for each in found.operators), Work())


def test_a_message_that_cannot_be_recorded_has_no_picture() -> None:
    assert written(lambda there, here: there * torch.rand(()), forms_of(**rows()), "sum", SIZES) == ()


def test_flags_between_passes_are_told_where_a_device_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    both = nn.Linear(4, 4)
    given = {"src": [torch.randn(20, 4, requires_grad=True)], "dst": [torch.randn(10, 4, requires_grad=True)]}

    def message(there: Tensor, here: Tensor) -> Tensor:
        return both((there + here).relu())  # type: ignore[no-any-return]

    made = compile_message(message, forms_of(**given), "max")
    inputs = made.inputs([*given["src"], *given["dst"]], captures(message, made.executed))
    found = []
    for keeps in (False, True):
        monkeypatch.setattr(cpu, "KEEPS_FLAGS", keeps)
        found.append(described(made, inputs, SIZES, torch.device("cpu"), RUNS).kernels[0])
    without, having = found
    assert without.stored == ()
    assert having.stored == (("flags", (1, 4)),)
    assert having.again < without.again
