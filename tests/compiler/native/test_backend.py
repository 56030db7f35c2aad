"""Programs on the native core against the reference: values, special values, odd graphs, bits, threads."""

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.programs import edges_of, random_program, tensors_of, transposed
from torch import Tensor

from weft import kernels
from weft.compiler.native import backend as cpu
from weft.compiler.programs import reference
from weft.compiler.programs.gradient import gradients
from weft.compiler.programs.program import ARITY, IDENTITIES, Builder, Edges, Program, Result
from weft.compiler.programs.run import extra_tensors, reduce_edges
from weft.errors import GraphError, InputError

pytestmark = pytest.mark.skipif(not kernels.native.available(), reason="the native core is not built")
KINDS = ["sum", "max", "min", "softmax"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 2.0, 1e-30, -1e-8, 20.0, -20.0, 90.0, -90.0, 800.0, -800.0]
SPECIAL += [1e20, -1e20, 1e-40, math.pi, 7e5, -3e6, 1e9, math.inf, -math.inf, math.nan]


@pytest.fixture(params=["portable", "AVX2", "AVX-512"])
def level(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test on every instruction set that the machine has."""
    core = kernels.native.library()
    assert core is not None
    wanted = ["portable", "AVX2", "AVX-512"].index(request.param)
    if wanted > core.weft_detected_level():
        pytest.skip(f"no {request.param} here")
    core.weft_set_level(wanted)
    yield
    core.weft_set_level(core.weft_detected_level())


def assert_as_reference(program: Program, edges: Edges, tensors: list[Tensor], **tolerance: float) -> None:
    assert cpu.obstacle(program, edges, tensors) == ""
    expected = reference.run(program, edges, tensors)
    found = cpu.run(program, edges, tensors)
    assert len(found) == len(expected)
    for have, want in zip(found, expected):
        torch.testing.assert_close(have, want, equal_nan=True, **tolerance)


def backward_programs(
    program: Program, edges: Edges, tensors: list[Tensor]
) -> list[tuple[Program, Edges, list[Tensor]]]:
    """Return the gradient programs of a program, what they run over and on."""
    kind = program.results[0].kind
    out, *beside = reference.run(program, edges, tensors)
    grad = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
    passes = gradients(program, (True,) * len(tensors))
    given_tensors = [*tensors, *extra_tensors(kind, out, beside, grad, None)]
    both = [(passes.of_rows, edges), (passes.of_others, transposed(edges))]
    return [(made, over, given_tensors) for made, over in both if made is not None]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_random_programs_and_their_gradients_equal_the_reference(seed: int, kind: str) -> None:
    program, edges = random_program(seed, kind), edges_of(seed)
    tensors = tensors_of(program, edges, seed)
    assert_as_reference(program, edges, tensors, rtol=1e-10, atol=1e-10)
    for made, over, given_tensors in backward_programs(program, edges, tensors):
        if kind in ("sum", "softmax"):
            assert_as_reference(made, over, given_tensors, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_instruction_set_equals_the_reference(level: None, kind: str, dtype: torch.dtype) -> None:
    tolerance = 1e-10 if dtype == torch.float64 else 2e-4
    for seed in range(1, 9):
        program, edges = random_program(seed, kind), edges_of(seed)
        tensors = tensors_of(program, edges, seed, dtype)
        assert_as_reference(program, edges, tensors, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("op", [op for op in ARITY if op not in IDENTITIES])
def test_every_step_alone_on_special_values(level: None, op: str, dtype: torch.dtype) -> None:
    many = [torch.tensor(SPECIAL, dtype=dtype)] * ARITY[op]
    grid = torch.cartesian_prod(*many).reshape(-1, ARITY[op]) if ARITY[op] > 1 else many[0][:, None]
    random = torch.randn(997, ARITY[op], dtype=dtype, generator=torch.Generator().manual_seed(0)) * 4
    columns = torch.cat([grid, random, random.exp()])
    made = Builder()
    step = made.step(op, *[made.load("edge", (1, 1)) for _ in range(ARITY[op])])
    program = made.program([Result("edge", (step,))])
    count = len(columns)
    edges = Edges(torch.tensor([0, count]), torch.zeros(count, dtype=torch.int64), 1)
    tensors = [columns[:, i].reshape(-1, 1, 1).contiguous() for i in range(ARITY[op])]
    if op == "same":  # the reference takes what is almost the same
        expected = ((tensors[0] == tensors[1]) | (tensors[0].isnan() & tensors[1].isnan())).to(dtype)
    else:
        (expected,) = reference.run(program, edges, tensors)
    (found,) = cpu.run(program, edges, tensors)
    ulps = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(found, expected, rtol=ulps, atol=torch.finfo(dtype).tiny, equal_nan=True)


def wide_program(heads: int, width: int, kind: str) -> Program:
    """Return a program with every way in which a value goes along the axes of another."""
    made = Builder()
    a, b = made.load("other", (heads, width)), made.load("row", (heads, width))
    per_head, per_edge = made.load("other", (heads, 1)), made.load("edge", (1, 1))
    shared, along, matrix = (
        made.load("shared", (heads, width)),
        made.load("row", (1, width)),
        made.load("weight", (width, width)),
    )
    x = made.step("mul", made.step("add", a, b), made.step("sigmoid", per_head))
    x = made.step("sub", per_edge, made.step("add", x, shared))
    x = made.step("maximum", made.step("mul", x, along), made.step("tanh", shared))
    x = made.step("add", x, made.dot_t(made.step("tanh", x), matrix))
    x = made.step("where", made.step("gt", per_edge, made.constant(0.2)), x, made.step("neg", a))
    x = made.step("add", x, made.sum_heads(x))
    score = made.sum_width(made.step("mul", x, made.step("div", shared, made.constant(float(width)))))
    args = (score, x) if kind == "softmax" else (x,)
    return made.program([Result(kind, args)])  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 8, 12, 15, 16, 17, 31, 32, 33, 64, 65, 100, 130])
@pytest.mark.parametrize("heads", [1, 4])
def test_every_width_and_broadcast(heads: int, width: int) -> None:
    for i, kind in enumerate(KINDS):
        program = wide_program(heads, width, kind)
        edges = edges_of(width + i + 1 + ((width + i + 1) % 10 == 0), num_edges=200)
        tensors = tensors_of(program, edges, width)
        assert_as_reference(program, edges, tensors, rtol=1e-9, atol=1e-9)
        if kind in ("sum", "softmax"):
            assert_as_reference(program, edges, [t.float() for t in tensors], rtol=2e-3, atol=2e-3)
            for made, over, given_tensors in backward_programs(program, edges, tensors):
                assert_as_reference(made, over, given_tensors, rtol=1e-8, atol=1e-8)


def hub_edges(degree: int = 100_000, *, dtype: torch.dtype = torch.int32) -> Edges:
    draw = torch.Generator().manual_seed(3)
    degrees = torch.tensor([3, 0, degree, 7, 5000, 0, 1, 300])
    indptr = torch.zeros(len(degrees) + 1, dtype=torch.int64)
    indptr[1:] = degrees.cumsum(0)
    count = int(indptr[-1])
    other = torch.randint(0, 50, (count,), generator=draw).to(dtype)
    return Edges(indptr, other, 50, torch.randperm(count, generator=draw).to(dtype))


@pytest.mark.parametrize("kind", KINDS)
def test_hubs_and_threads(kind: str) -> None:
    program, edges = wide_program(2, 5, kind), hub_edges(dtype=torch.int64 if kind == "max" else torch.int32)
    tensors = tensors_of(program, edges, 5)
    assert_as_reference(program, edges, tensors, rtol=1e-8, atol=1e-8)
    assert_same_bits_on_every_number_of_threads(program, edges, tensors)
    for made, over, given_tensors in backward_programs(program, edges, tensors):
        if kind in ("sum", "softmax"):
            assert_as_reference(made, over, given_tensors, rtol=1e-7, atol=1e-7)
        assert_same_bits_on_every_number_of_threads(made, over, [t.float() for t in given_tensors])


def assert_same_bits_on_every_number_of_threads(
    program: Program, edges: Edges, tensors: list[Tensor]
) -> None:
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(cpu.run(program, edges, tensors))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        for one, two in zip(found[0], other):
            assert torch.equal(one.nan_to_num(7.0), two.nan_to_num(7.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [3, 16, 37])
def test_an_edge_has_the_same_bits_wherever_it_lies(level: None, dtype: torch.dtype, width: int) -> None:
    """The value of an edge alone, among others and in another order: extremes find their edges by it."""
    program = wide_program(2, width, "sum")
    program = Program(program.loads, program.steps, (Result("edge", program.results[0].args),))
    edges = edges_of(7, num_edges=333)
    tensors = tensors_of(program, edges, 2, dtype)
    (forth,) = cpu.run(program, edges, tensors)
    (back,) = cpu.run(program.swapped, transposed(edges), tensors)
    assert torch.equal(forth, back)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_the_gradient_of_an_extreme_reaches_the_edges_that_attain_it(kind: str) -> None:
    program, edges = wide_program(2, 20, kind), edges_of(11, num_edges=400)
    tensors = tensors_of(program, edges, 4, torch.float64)
    out, count = cpu.run(program, edges, tensors)
    grad = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
    passes = gradients(program, (True,) * len(tensors))
    leaves = [t.clone().requires_grad_() for t in tensors]
    expected = torch.autograd.grad(reference.run(program, edges, leaves)[0], leaves, grad)
    given_tensors = [*tensors, *extra_tensors(kind, out, [count], grad, None)]
    for made, places, over in (
        (passes.of_rows, passes.row_places, edges),
        (passes.of_others, passes.other_places, transposed(edges)),
    ):
        assert made is not None
        found: dict[int, Tensor] = {}
        for place, each in zip(places, cpu.run(made, over, given_tensors)):
            found[place] = found.get(place, torch.zeros(())) + each
        for place, each in found.items():
            torch.testing.assert_close(each, expected[place], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_infinite_and_missing_numbers_in_reductions(kind: str) -> None:
    made = Builder()
    score, value = made.load("edge", (2, 1)), made.load("edge", (2, 3))
    args = (score, value) if kind == "softmax" else (value,)
    program = made.program([Result(kind, args)])  # type: ignore[arg-type]
    indptr = torch.tensor([0, 2, 2, 4, 6, 8, 20])
    edges = Edges(indptr, torch.zeros(20, dtype=torch.int32), 1)
    tensors = tensors_of(program, edges, 1)
    inf = math.inf
    tensors[0][:8, 0, 0] = torch.tensor([-inf, -inf, -inf, 1.0, inf, 1.0, math.nan, 1.0], dtype=torch.float64)
    tensors[1][:8, 0, 0] = torch.tensor([-inf, -inf, -inf, 1.0, inf, inf, 1.0, math.nan], dtype=torch.float64)
    assert_as_reference(program, edges, tensors)


def test_a_softmax_may_have_one_score_for_all_heads() -> None:
    made = Builder()
    value = made.load("other", (3, 4))
    program = made.program([Result("softmax", (made.load("edge", (1, 1)), value))])
    edges = edges_of(3)
    assert_as_reference(program, edges, tensors_of(program, edges, 1), rtol=1e-12, atol=1e-12)


def test_sums_over_all_edges_and_constants() -> None:
    made = Builder()
    shared, matrix = made.load("shared", (2, 5)), made.load("weight", (5, 3))
    edge = made.load("edge", (2, 5))
    one = made.constant(1.5)
    turned = made.dot(shared, matrix)
    results = [Result("sum", (one,)), Result("edge", (turned,)), Result("shared", (edge,))]
    results += [Result("weight", (edge, turned)), Result("weight", (one, edge)), Result("max", (edge,))]
    program = made.program(results)  # type: ignore[arg-type]
    edges = hub_edges(9000)
    assert_as_reference(program, edges, tensors_of(program, edges, 1), rtol=1e-9, atol=1e-9)


def test_strided_tensors_are_taken() -> None:
    made = Builder()
    program = made.program([Result("sum", (made.load("other", (2, 3)),))])
    edges = edges_of(3)
    tensor = torch.randn(3, 2, edges.num_other).permute(2, 1, 0)
    assert_as_reference(program, edges, [tensor])


def test_wrong_input_is_refused_in_one_line() -> None:
    program, edges = random_program(3, "sum"), edges_of(3)
    tensors = tensors_of(program, edges, 3)
    with pytest.raises(InputError, match=r"load 0 \(row\) must be of shape"):
        cpu.run(program, edges, [tensors[0][:-1], *tensors[1:]])
    with pytest.raises(InputError, match="tensors, got"):
        cpu.run(program, edges, tensors[:-1])
    for bad in (-1, edges.num_other):
        other = edges.other.clone()
        other[4] = bad
        with pytest.raises(GraphError, match="points outside"):
            cpu.run(program, Edges(edges.indptr, other, edges.num_other), tensors)
    with pytest.raises(GraphError, match="indptr"):
        cpu.run(program, Edges(edges.indptr + 1, edges.other, edges.num_other), tensors)
    with pytest.raises(InputError, match="numbers must be"):
        cpu.run(program, Edges(edges.indptr, edges.other, edges.num_other, edges.other[:3]), tensors)


def test_what_the_core_cannot_run_is_named() -> None:
    program, edges = random_program(3, "sum"), edges_of(3)
    tensors = tensors_of(program, edges, 3)
    assert "float32" in cpu.obstacle(program, edges, [tensors[0].half(), *tensors[1:]])
    with kernels.native.disabled():
        assert "core" in cpu.obstacle(program, edges, tensors)
    made = Builder()
    value = made.load("row", (1, 1))
    made.repeat(type(program.steps[0])("digamma", (value,), (1, 1)))
    assert "digamma" in cpu.obstacle(made.program([Result("sum", (1,))]), edges, [torch.zeros(9, 1, 1)])


def test_tensors_of_the_cpu_run_on_the_core_forth_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    program, edges = random_program(3, "sum"), edges_of(3)
    tensors = [t.requires_grad_() for t in tensors_of(program, edges, 3)]
    expected = torch.autograd.grad(
        reference.run(program, edges, tensors)[0].sum(), tensors, materialize_grads=True
    )

    def forbidden(*args: object) -> None:
        raise AssertionError("ran on the reference")

    monkeypatch.setattr(reference, "run", forbidden)
    out, _ = reduce_edges(program, edges, lambda: transposed(edges), tensors)
    for have, want in zip(torch.autograd.grad(out.sum(), tensors, materialize_grads=True), expected):
        torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)
