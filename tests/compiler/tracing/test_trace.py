"""Traces: what ran is known, whoever else watches, and what torch does for itself is not."""

import cProfile
import gc
import math
import pstats
import sys
from types import CodeType
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from weft.compiler.tracing.captures import NotCompiled, explained
from weft.compiler.tracing.trace import EDGES, MODE, Form, trace

ROWS = Form("source", torch.Size([4]), torch.float32, torch.device("cpu"))
MAP = nn.Linear(4, 3)
COMPUTED = MAP.weight.sum(0)


def inner(rows: Tensor) -> Tensor:
    return MAP(rows).tanh()  # type: ignore[no-any-return]


def message(rows: Tensor) -> Tensor:
    return inner(rows) if rows.shape[1] == 4 else elsewhere(rows)


def elsewhere(rows: Tensor) -> Tensor:
    return rows


def marked() -> None:
    """Be found by a profiler."""


def names(codes: frozenset[CodeType]) -> set[str]:
    return {code.co_name for code in codes}


def test_code_that_ran_is_noted_and_that_of_torchs_shapes_is_not() -> None:
    found = trace(message, [ROWS])
    assert {"message", "inner"} <= names(found.executed)
    assert "elsewhere" not in names(found.executed)
    assert not any("fake_tensor" in code.co_filename for code in found.executed)
    assert next(iter(found.graph.nodes)).meta["val"].shape == (EDGES, 4)


def test_a_python_profiler_goes_on() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        found = trace(message, [ROWS])
        marked()
    finally:
        profiler.disable()
    seen = {name for _, _, name in pstats.Stats(profiler).stats}  # type: ignore[attr-defined]
    assert "marked" in seen
    assert "inner" in names(found.executed)


def test_a_function_that_profiles_goes_on() -> None:
    seen: list[str] = []

    def note(frame: Any, event: str, value: Any) -> None:
        seen.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        trace(message, [ROWS])
        marked()
    finally:
        sys.setprofile(None)
    assert "marked" in seen


def test_a_profiler_that_cannot_be_put_back_is_left_in_place() -> None:
    with profile(activities=[ProfilerActivity.CPU], with_stack=True):
        watching = sys.getprofile()
        found = trace(message, [ROWS])
        assert sys.getprofile() is watching
    assert {"message", "inner", "elsewhere"} <= names(found.executed), "all that may have run"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (lambda rows: rows.sum(), "does not return a row per edge"),
        (lambda rows: rows.add_(1), "in-place"),
        (lambda rows: rows + torch.rand(()), "random"),
        (lambda rows: rows if rows.sum() > 0 else -rows, "reads the values of a tensor"),
        (lambda rows: rows * COMPUTED, "a computed tensor with a gradient"),
    ],
)
def test_what_has_no_trace_says_why(given: Any, reason: str) -> None:
    with pytest.raises(NotCompiled, match=reason):
        trace(given, [ROWS])


HELD = torch.tensor([2.0, 3.0, 4.0, 5.0])


@pytest.mark.parametrize(
    "read",
    [
        lambda rows: rows * float(HELD.numpy()[0]),
        lambda rows: rows * float(numpy.asarray(HELD)[0]),
        lambda rows: rows * HELD.tolist()[0],
        lambda rows: rows * len(rows.sum(0).tolist()),
        lambda rows: rows * (rows.data_ptr() % 2),
        lambda rows: rows * HELD.sum().item(),
        lambda rows: rows * (2 if 3.0 in HELD else 1),
        lambda rows: rows * len(f"{HELD}"),
        lambda rows: rows * (2 if torch.equal(HELD, HELD) else 1),
    ],
)
def test_a_message_that_reads_values_in_python_is_refused(read: Any) -> None:
    with pytest.raises(NotCompiled, match="reads the values of a tensor in Python"):
        trace(read, [ROWS])


def test_a_message_that_goes_over_its_edges_is_refused_at_once() -> None:
    for read in (lambda rows: torch.stack([row * 2 for row in rows]), lambda rows: rows * len(rows.tolist())):
        with pytest.raises(NotCompiled, match="one by one"):
            trace(read, [ROWS])


@pytest.mark.parametrize(
    "read", [lambda u: bool(u.sum() > 0), lambda u: u[u > 0], lambda u: torch.rand_like(u)]
)
def test_a_refusal_that_the_message_catches_still_counts(read: Any) -> None:
    def careful(rows: Tensor) -> Tensor:
        try:
            read(rows)
        except Exception:
            return rows * 100
        return rows

    with pytest.raises(NotCompiled):
        trace(careful, [ROWS])


def halved(rows: Tensor) -> Tensor:
    return rows * 2 if len(rows) > 1000 else rows


@pytest.mark.parametrize(
    "given",
    [
        lambda rows: rows / rows.size(0) ** 0.5,
        lambda rows: rows / math.log(len(rows)),
        halved,
        lambda rows: rows * (2 if len(rows) % 2 else 3),
        lambda rows: rows * (2 if rows.numel() > 1000 else 3),
        lambda rows: rows * (HELD if rows.shape[0] > 1000 else MAP.weight[0]),
        lambda rows: rows * torch.full((len(rows), 1), len(rows) // 2),
        lambda rows: rows * len(rows.split(100_000)),
    ],
)
def test_a_message_that_computes_with_the_number_of_edges_is_refused(given: Any) -> None:
    with pytest.raises(NotCompiled, match="number of edges in Python"):
        trace(given, [ROWS])


def test_sizes_that_count_edges_and_widths_that_do_not_are_no_computing() -> None:
    wide = Form("source", torch.Size([22, 24]), torch.float32, torch.device("cpu"))

    def shaped(rows: Tensor) -> Tensor:
        flat = rows.reshape(rows.shape[0] * 22, 24) + rows.new_zeros(len(rows) * 22, 1)
        return torch.einsum("ehf,hf->eh", flat.view(-1, 22, 24), torch.ones(22, 24)) / math.nan

    found = trace(shaped, [wide])
    assert next(iter(found.graph.nodes)).meta["val"].shape == (EDGES, 22, 24)


def test_what_runs_when_garbage_is_collected_is_not_the_messages() -> None:
    called: list[str] = []

    def collected(phase: str, told: dict[str, int]) -> None:
        called.append(phase)

    before = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(1)
    try:
        found = trace(message, [ROWS])
    finally:
        gc.callbacks.remove(collected)
        gc.set_threshold(*before)
    assert called
    assert "collected" not in names(found.executed)
    assert gc.isenabled()


def first_zero(rows: Tensor) -> Tensor:
    made = rows * 2
    made[:, 0] = 0
    return made


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (first_zero, "writes in place"),
        (nn.BatchNorm1d(4), "writes in place"),
        (lambda rows: rows * HELD.add_(0), "writes in place"),
        (lambda rows: rows * torch.tensor(0.5), "do not lead to"),
    ],
)
def test_writes_and_tensors_made_on_the_way_are_named(given: Any, reason: str) -> None:
    with pytest.raises(NotCompiled, match=reason):
        trace(given, [ROWS])


def test_nothing_is_logged_of_what_goes_wrong_in_rewriting(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(NotCompiled, match="rewriting failed"), explained("rewriting"), MODE:
        torch.empty(3, 1).expand(4, 2)
    assert not caplog.records


@pytest.mark.parametrize(
    "asks",
    [
        lambda rows: rows.grad_fn is None,
        lambda rows: getattr(rows, "is_leaf"),  # noqa: B009 - no name in its code
        lambda rows: type(rows) is Tensor,
        lambda rows: rows.__class__.__name__ == "Tensor",
        lambda rows: type(rows) in (Tensor,),
    ],
)
def test_what_a_recorded_tensor_is_decides_nothing(asks: Any) -> None:
    with pytest.raises(NotCompiled, match=r"asks how a tensor was made|compares types"):
        trace(lambda rows: rows * 2 if asks(rows) else rows, [ROWS])


def test_the_type_of_what_holds_a_number_may_be_asked_for() -> None:
    class Holder:
        factor = 2.0

    held = Holder()
    assert trace(lambda rows: rows * type(held).factor, [ROWS]).dtype == torch.float32
