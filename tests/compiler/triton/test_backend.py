"""Programs as Triton kernels against the reference, on a GPU or by Triton's interpreter on the CPU.

The interpreter must be chosen before Python starts, so one test here runs this file again in a process of its
own. Graphs are tiny, and a row of more than 8 edges counts as a hub.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_checks import DEVICE, assert_near
from tests.support.programs import HEADS, WIDTH, edges_of, random_program, tensors_of, transposed
from torch import Tensor
from triton_checks import HERE, on_triton, run_under_the_interpreter

from weft import kernels
from weft.compiler.programs import reference
from weft.compiler.programs import run as backends
from weft.compiler.programs.gradient import gradients
from weft.compiler.programs.program import Builder, Edges, Program, Result
from weft.compiler.programs.run import extra_tensors, run
from weft.compiler.triton import ahead, form
from weft.compiler.triton import backend as gpu
from weft.compiler.triton.form import KernelForm
from weft.compiler.triton.generated import module_of
from weft.compiler.triton.source import source
from weft.graph.message import compiled
from weft.graph.message.block import Block

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")

KINDS = ("sum", "max", "min", "softmax")


@pytest.mark.skipif(HERE, reason="this is the process apart")
@pytest.mark.timeout(900)
def test_programs_under_the_interpreter() -> None:
    run_under_the_interpreter(__file__)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut rows at 8 edges, and put rows of one length together in small graphs, too."""
    if HERE:
        from weft.kernels.triton import plan

        monkeypatch.setattr(plan, "SEGMENT", 8)
        monkeypatch.setattr(gpu, "SORTED", 1)


def on_device(edges: Edges) -> Edges:
    numbers = None if edges.numbers is None else edges.numbers.to(DEVICE)
    return replace(edges, indptr=edges.indptr.to(DEVICE), other=edges.other.to(DEVICE), numbers=numbers)


def both_passes(program: Program, edges: Edges, tensors: Sequence[Tensor], backend: object) -> list[Tensor]:
    """Return the results of a program and of its gradient programs, made by one backend."""
    made = backend.run(program, edges, tensors)  # type: ignore[attr-defined]
    kind = program.results[0].kind
    draw = torch.Generator().manual_seed(7)
    grad = torch.randn(made[0].shape, generator=draw, dtype=torch.float64).to(made[0])
    passes = gradients(program, [True] * len(tensors), flags=True)
    given = [*tensors, *extra_tensors(kind, made[0], made[1:], grad, None)]
    back = on_device(transposed(Edges(edges.indptr.cpu(), edges.other.cpu(), edges.num_other)))
    for each, over in ((passes.of_rows, edges), (passes.of_others, back)):
        if each is not None:
            made += backend.run(each, over, given)  # type: ignore[attr-defined]
            if passes.flags and each is passes.of_rows:
                given.append(made.pop())
    return made


def in_eighths(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return numbers whose products and their sums are exact, in whichever order they are added up."""
    return [(each * 8).round() / 8 for each in tensors]


def assert_as_reference(
    program: Program, seed: int, dtype: torch.dtype = torch.float64, *, eighths: bool = False
) -> None:
    """Hold results and gradients to the reference in float64, on the values that the type holds.

    The interpreter's matrix products have other bits for an edge that lies elsewhere; of `eighths` they are
    exact.
    """
    edges = on_device(edges_of(seed))
    tensors = [each.to(DEVICE, dtype) for each in tensors_of(program, edges, seed)]
    tensors = in_eighths(tensors) if eighths else tensors
    assert not gpu.obstacle(program, edges, tensors)
    have = both_passes(program, edges, tensors, gpu)
    want = both_passes(program, edges, [each.double() for each in tensors], reference)
    for a, b in zip(have, want, strict=True):
        if dtype == torch.float64 or not a.is_floating_point():
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)
        else:
            assert a.dtype == dtype
            infinite = b.isinf()  # the logarithm of a row without edges
            assert torch.equal(a.isinf(), infinite)
            assert_near(a.masked_fill(infinite, 0), b.masked_fill(infinite, 0), dtype)


@on_triton
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [10, 23, 36])
def test_random_programs_and_their_gradients_equal_the_reference(seed: int, kind: str) -> None:
    assert_as_reference(random_program(seed, kind), seed)


@on_triton
@settings(
    max_examples=6,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 10**6), st.sampled_from(["sum", "softmax"]))
def test_any_smooth_program_and_its_gradients_equal_the_reference(seed: int, kind: str) -> None:
    assert_as_reference(random_program(seed, kind, steps=5), seed)


def gated(width: int = WIDTH) -> Program:
    made = Builder()
    a, b = (made.load("row", (1, width)) for _ in range(2))
    c, d = (made.load("other", (1, width)) for _ in range(2))
    gate = made.step("sigmoid", made.step("add", a, c))
    return made.program([Result("sum", (made.step("mul", gate, made.step("relu", made.step("add", b, d))),))])


def edge_convolution(kind: str, width: int, out: int) -> Program:
    made = Builder()
    a, b = made.load("row", (1, width)), made.load("other", (1, width))
    weight, bias = made.load("weight", (out, width)), made.load("shared", (1, out))
    inner = made.step("relu", made.step("add", a, b))
    return made.program([Result(kind, (made.step("add", made.dot_t(inner, weight), bias),))])  # type: ignore[arg-type]


def attention(heads: int, width: int) -> Program:
    made = Builder()
    near, far = made.load("row", (heads, 1)), made.load("other", (heads, 1))
    value = made.load("other", (heads, width))
    return made.program([Result("softmax", (made.step("tanh", made.step("add", near, far)), value))])


@on_triton
@pytest.mark.parametrize(
    "program",
    [
        gated(),
        gated(64),
        edge_convolution("max", 20, 33),
        edge_convolution("min", 1, 3),
        edge_convolution("max", 3, 1),
        edge_convolution("sum", 1, 1),
        attention(3, 5),
        attention(1, 64),
    ],
    ids=lambda program: "-".join(str(load.shape[1]) for load in program.loads),
)
def test_layers_and_their_gradients_equal_the_reference(program: Program) -> None:
    assert_as_reference(program, 3, eighths=True)
    assert_as_reference(program, 4, torch.float32, eighths=True)


@on_triton
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("program", [gated(5), attention(2, 3)], ids=["sum", "softmax"])
def test_16_bit_values_are_summed_in_32_bits(program: Program, dtype: torch.dtype) -> None:
    assert_as_reference(program, 3, dtype)


@on_triton
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_gradient_of_an_extreme_goes_to_the_edges_that_attain_it(dtype: torch.dtype) -> None:
    program = edge_convolution("max", 5, 4)
    edges = on_device(edges_of(3))
    tensors = [each.to(DEVICE, dtype) for each in tensors_of(program, edges, 3)]
    out, count = gpu.run(program, edges, tensors)
    passes = gradients(program, [False, False, False, True])
    assert passes.of_rows is not None
    ones = torch.ones_like(out)
    given = [*tensors, *extra_tensors("max", out, [count], ones, None)]
    (bias,) = gpu.run(passes.of_rows, edges, given)
    assert int(count.max()) >= 1
    rows = int((edges.indptr.diff() > 0).sum())
    torch.testing.assert_close(bias.double(), torch.full_like(bias, rows).double(), rtol=1e-2, atol=0)


@on_triton
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("kind", "width", "out"), [("max", 20, 33), ("min", 3, 5), ("max", 64, 64)])
def test_the_gradient_of_an_extreme_goes_by_winners(
    kind: str, width: int, out: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(backends._BACKENDS, DEVICE, "weft.compiler.triton.backend")
    program, tied = edge_convolution(kind, width, out), []
    edges = on_device(edges_of(3, num_rows=9, num_edges=60))
    edges.other[edges.other == 0] = 1
    tensors = [each.to(DEVICE, dtype) for each in tensors_of(program, edges, 3)]
    tensors[1][0] = torch.inf  # which no edge reads
    leaves = [each.requires_grad_() for each in in_eighths(tensors)]
    back = on_device(transposed(replace(edges, indptr=edges.indptr.cpu(), other=edges.other.cpu())))
    rows = backends.tied_rows
    monkeypatch.setattr(backends, "tied_rows", lambda who: tied.append(len(rows(who))) or rows(who))
    monkeypatch.setattr(reference, "run", None)

    def step() -> list[Tensor]:
        made, _ = backends.reduce_edges(program, edges, lambda: back, leaves)
        return [made, *torch.autograd.grad(made, leaves, made.detach())]

    first, again = step(), step()
    assert len(tied) == 2
    assert 0 < tied[0] < edges.num_rows  # the hub, whose segments are not compared
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    monkeypatch.setattr(gpu, "WINNERS", False)
    for have, want in zip(first, step(), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-9 if dtype == torch.float64 else 1e-4, atol=1e-4)
    assert len(tied) == 2


@on_triton
@pytest.mark.parametrize("kind", ["max", "sum"])
def test_backward_launches_the_kernels_that_were_begun_before_forward(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(backends._BACKENDS, DEVICE, "weft.compiler.triton.backend")
    monkeypatch.setattr(backends, "_prepared", set())
    program = edge_convolution(kind, 8, 8)
    edges = on_device(edges_of(3, num_rows=40, num_other=90, num_edges=260))
    leaves = [each.to(DEVICE, torch.float32).requires_grad_() for each in tensors_of(program, edges, 3)]
    row = edges.other[edges.indptr[10] : edges.indptr[11]]
    with torch.no_grad():
        leaves[1][row[:2].long()] = 9.0  # edges of two nodes attain the largest value
    back = on_device(transposed(replace(edges, indptr=edges.indptr.cpu(), other=edges.other.cpu())))
    begun: list[ahead.Key] = []
    launched: list[ahead.Key] = []

    def make(kernel: object, form: KernelForm, fixed: dict[str, object], given: object) -> None:
        begun.append(ahead.key_of(form, fixed))

    monkeypatch.setattr(ahead, "make", make)
    monkeypatch.setattr(ahead, "wait", lambda form, fixed: launched.append(ahead.key_of(form, fixed)))
    from weft.kernels.triton import plan

    monkeypatch.setattr(plan, "SEGMENT", 512)
    monkeypatch.setattr(gpu, "SORTED", 1 << 18)
    out, _ = backends.reduce_edges(program, edges, lambda: back, leaves)
    assert len(launched) == 1
    assert launched[0] not in begun
    torch.autograd.grad(out, leaves, torch.ones_like(out))
    assert set(launched[1:]) == set(begun)
    assert len(begun) == (4 if kind == "max" else 2)


@on_triton
@pytest.mark.parametrize(("heads", "width"), [(1, 20), (3, 10), (11, 3)])
def test_wide_values_are_dealt_to_several_programs(
    heads: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(form, "WIDEST", 16)
    monkeypatch.setattr(form, "BLOCK", 8)
    made = Builder()
    near, value = made.load("row", (heads, 1)), made.load("other", (heads, width))
    score = near if width > 3 else made.step("add", near, made.sum_width(value))
    program = made.program([Result("softmax", (score, made.step("mul", near, value)))])
    assert KernelForm(program, (torch.float64,) * 2).blocks > 1
    assert_as_reference(program, 3)


@on_triton
def test_nan_is_the_extreme_of_its_row() -> None:
    program = edge_convolution("max", 3, 3)
    edges = on_device(edges_of(3))
    tensors = [each.to(DEVICE) for each in tensors_of(program, edges, 3)]
    tensors[1][2, 0, 1] = torch.nan
    for a, b in zip(gpu.run(program, edges, tensors), reference.run(program, edges, tensors)):
        torch.testing.assert_close(a, b, equal_nan=True)


@on_triton
@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_rows_changes_no_bit_of_them_and_twice_is_the_same(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = random_program(23, kind)
    edges = on_device(edges_of(23))
    tensors = in_eighths([each.to(DEVICE, torch.float32) for each in tensors_of(program, edges, 23)])
    first, again = (both_passes(program, edges, tensors, gpu) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    monkeypatch.setattr(gpu, "SORTED", 1 << 40)
    unsorted = gpu.run(program, edges, tensors)
    assert all(torch.equal(a, b) for a, b in zip(first, unsorted))


@on_triton
def test_a_plan_made_without_asking_gives_the_same_rows() -> None:
    from weft.kernels.triton import plan

    edges = on_device(edges_of(23))
    bounded = replace(edges, indptr=edges.indptr.clone())
    plan.bounded(bounded.indptr, edges.num_edges)
    assert (
        plan.plan_of(bounded.indptr, edges.num_edges).num_hubs
        > plan.plan_of(edges.indptr, edges.num_edges).num_hubs
    )
    for kind in KINDS:
        program = random_program(23, kind)
        tensors = [each.to(DEVICE) for each in tensors_of(program, edges, 23)]
        for a, b in zip(gpu.run(program, edges, tensors), gpu.run(program, bounded, tensors)):
            assert torch.equal(a, b)


@on_triton
def test_what_does_not_fit_names_its_obstacle() -> None:
    edges = on_device(edges_of(3))

    def obstacle(program: Program, dtype: torch.dtype = torch.float32) -> str:
        tensors = [each.to(DEVICE, dtype) for each in tensors_of(program, edges, 3)]
        return gpu.obstacle(program, edges, tensors)

    assert "int64" in obstacle(gated(), torch.int64)
    assert "300 × 8" in obstacle(edge_convolution("max", 8, 300))
    made = Builder()
    value = made.load("other", (1, 128))
    weights = [made.load("weight", (128, 128)) for _ in range(8)]
    for each in weights:
        value = made.dot(value, each)
    assert "fast memory" in obstacle(made.program([Result("sum", (value,))]))
    made = Builder()
    wide = made.sum_width(made.load("other", (HEADS, 700)))
    assert "belong together" in obstacle(made.program([Result("sum", (wide,))]))


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
def test_programs_on_a_gpu_run_as_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    edges, program = on_device(edges_of(3)), gated()
    tensors = [each.to(DEVICE) for each in tensors_of(program, edges, 3)]
    monkeypatch.setattr(reference, "run", None)
    assert run(program, edges, tensors)[0].is_cuda


@on_triton
@pytest.mark.parametrize("reduce", ["sum", "max", "softmax"])
def test_a_message_that_a_user_wrote_runs_as_kernels(reduce: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends._BACKENDS, DEVICE, "weft.compiler.triton.backend")
    monkeypatch.setattr(compiled, "LEAST_NUMBERS", 1)
    edges = on_device(edges_of(3))
    back = on_device(transposed(edges_of(3)))
    held = kernels.Transposed(back.indptr, back.other, back.numbers)
    block = Block(edges.indptr, edges.other, num_src=edges.num_other, transposed=lambda: held)
    draw = torch.Generator().manual_seed(3)
    shapes = ((edges.num_other, 5), (edges.num_rows, 5), (6, 5))
    leaves = [torch.randn(shape, generator=draw).to(DEVICE).requires_grad_() for shape in shapes]

    def message(u: Tensor, v: Tensor, weight: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        made = torch.nn.functional.linear((u + v).relu(), weight).sigmoid()
        return (made.cos().sum(-1), made) if reduce == "softmax" else made

    def step() -> list[Tensor]:
        out = block.propagate(message, leaves[:1], leaves[1:2], [], reduce, leaves[2:])
        return [out, *torch.autograd.grad(out, leaves, torch.ones_like(out))]

    before = compiled.compile_messages(on=False)
    expected = step()
    compiled.compile_messages(on=before)
    monkeypatch.setattr(reference, "run", None)
    for have, want in zip(step(), expected, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5)


def test_a_text_is_one_module() -> None:
    form = KernelForm(gated(), (torch.float32,) * 4)
    assert source(form) == source(KernelForm(gated(), (torch.float32,) * 4))
    if HERE:
        assert module_of(source(form)) is module_of(source(form))


def test_products_are_as_precise_as_torch_was_told() -> None:
    matmul = torch.backends.cuda.matmul
    single, double = (
        KernelForm(edge_convolution("max", 8, 8), (each,) * 4) for each in (torch.float32, torch.float64)
    )
    assert (gpu.precision(single), gpu.precision(double)) == ("tf32x3", "ieee")
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        assert (gpu.precision(single), gpu.precision(double)) == ("tf32", "ieee")
    finally:
        matmul.fp32_precision = before


def test_all_passes_of_a_program_multiply_alike() -> None:
    for width in (64, 65):
        program = edge_convolution("max", width, 8)
        passes = gradients(program, [True] * 4)
        forms = [
            KernelForm(each, (torch.float32,) * len(each.loads))
            for each in (program, passes.of_rows, passes.of_others)
            if each is not None
        ]
        assert {gpu.precision(each) for each in forms} == {"tf32x3" if width == 64 else "ieee"}
