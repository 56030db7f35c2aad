"""Store or make again: what is chosen, within which memory, and that it changes no gradient and no bit."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.programs import edges_of, random_program, tensors_of, transposed
from torch import Tensor

from weft.compiler.native import backend as cpu
from weft.compiler.programs import keep, reference, run
from weft.compiler.programs.cost import EdgeCounts
from weft.compiler.programs.gradient import gradients
from weft.compiler.programs.keep import Kept, choice, kept, kept_bytes, storing
from weft.compiler.programs.program import Builder, Edges, Program, Result
from weft.compiler.programs.run import extra_tensors, reduce_edges

CPU = torch.device("cpu")
MANY = EdgeCounts(1000, 1000, 16_000)


def two_maps(width: int, kind: str = "max") -> Program:
    """Return relu(a[u] + b[v]) through two maps: the last value has all products behind it."""
    made = Builder()
    a, b = made.load("other", (1, width)), made.load("row", (1, width))
    first, second = made.load("weight", (width, width)), made.load("weight", (width, width))
    inner = made.step("relu", made.dot(made.step("relu", made.step("add", a, b)), first))
    return made.program([Result(kind, (made.dot_t(inner, second),))])  # type: ignore[arg-type]


def one_map_to_a_score(width: int) -> Program:
    """Return softmax over edges of tanh(a[u] · M b[v]) with values a: one number per edge, dear to make."""
    made = Builder()
    a, b = made.load("other", (1, width)), made.load("row", (1, width))
    weight = made.load("weight", (width, width))
    score = made.sum_width(made.step("mul", made.dot(made.step("tanh", a), weight), b))
    return made.program([Result("softmax", (score, a))])


def elementwise() -> Program:
    made = Builder()
    a, b = made.load("other", (4, 16)), made.load("row", (4, 16))
    return made.program([Result("sum", (made.step("mul", made.step("sigmoid", a), made.step("tanh", b)),))])


def all_of(program: Program) -> tuple[bool, ...]:
    return (True,) * len(program.loads)


def names(program: Program, chosen: Kept) -> list[str]:
    return [program.steps[each - len(program.loads)].op for each in chosen]


def test_what_is_cheap_is_made_again() -> None:
    program = elementwise()
    assert kept(program, all_of(program), MANY, torch.float32, CPU) == ()


def test_dense_products_on_edges_are_stored_where_they_are_wide() -> None:
    wide, narrow = two_maps(128), two_maps(8)
    assert "dot_t" in names(wide, kept(wide, all_of(wide), MANY, torch.float32, CPU))
    assert kept(narrow, all_of(narrow), MANY, torch.float32, CPU) == ()


def test_a_score_that_is_dear_is_stored_and_its_rows_are_not() -> None:
    program = one_map_to_a_score(64)
    chosen = choice(program, (False, True, False), 16, torch.float32, 24.0)
    assert [program.shapes[each] for each in chosen] in ([(1, 1)], [(1, 64)])


def test_a_faster_machine_keeps_less_and_one_without_a_number_nothing() -> None:
    program = two_maps(128)
    wanted = all_of(program)
    assert choice(program, wanted, 16, torch.float32, 24.0)
    assert choice(program, wanted, 16, torch.float32, 1e6) == ()
    assert choice(program, wanted, 16, torch.float32, 0.0) == ()
    assert kept(program, wanted, MANY, torch.float32, torch.device("meta")) == ()


def test_nothing_is_kept_without_gradients_edges_or_precision() -> None:
    program = two_maps(128)
    assert kept(program, (False,) * 4, MANY, torch.float32, CPU) == ()
    assert kept(program, all_of(program), EdgeCounts(5, 5, 0), torch.float32, CPU) == ()
    assert kept(program, all_of(program), MANY, torch.bfloat16, CPU) == (), "stored values would be rounded"


def test_memory_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    program = two_maps(128)
    chosen = kept(program, all_of(program), MANY, torch.float32, CPU)
    needed = kept_bytes(program, chosen, MANY, torch.float32)
    assert needed >= 16_000 * 128 * 4
    monkeypatch.setattr(keep, "free_memory", lambda: keep.SHARE * needed)
    assert kept(program, all_of(program), MANY, torch.float32, CPU) == chosen
    monkeypatch.setattr(keep, "free_memory", lambda: keep.SHARE * needed - 1)
    assert kept(program, all_of(program), MANY, torch.float32, CPU) == ()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["sum", "max", "min", "softmax"]), st.integers(1, 5))
def test_gradients_are_the_same_whatever_is_stored(seed: int, kind: str, count: int) -> None:
    program, edges = random_program(seed, kind), edges_of(seed)
    first = len(program.loads)
    values = [first + i for i, step in enumerate(program.steps) if step.op != "constant"]
    chosen = tuple(sorted(random.Random(seed).sample(values, min(count, len(values)))))
    tensors = [t.requires_grad_() for t in tensors_of(program, edges, seed)]
    out, *rest = reference.run(storing(program, chosen), edges, tensors)
    grad = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(seed))
    expected = torch.autograd.grad(out, tensors, grad, allow_unused=True)
    rest = [each.detach() for each in rest]
    extra = extra_tensors(kind, out.detach(), rest, grad, None)
    stored = rest[len(rest) - len(chosen) :]
    passes = gradients(program, all_of(program), kept=chosen)
    found: dict[int, Tensor] = {}
    for made, places, over in (
        (passes.of_rows, passes.row_places, edges),
        (passes.of_others, passes.other_places, transposed(edges)),
    ):
        if made is not None:
            tensors_given = [*(t.detach() for t in tensors), *extra, *stored]
            for place, each in zip(places, reference.run(made, over, tensors_given)):
                found[place] = found.get(place, 0) + each
    for place, want in enumerate(expected):
        have = found.get(place, torch.zeros_like(tensors[place]))
        want = torch.zeros_like(tensors[place]) if want is None else want
        torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["sum", "max", "softmax"]))
def test_the_core_stores_any_value(seed: int, kind: str) -> None:
    program, edges = random_program(seed, kind), edges_of(seed)
    first = len(program.loads)
    values = [first + i for i, step in enumerate(program.steps) if step.op != "constant"]
    whole = storing(program, tuple(random.Random(seed).sample(values, min(3, len(values)))))
    tensors = tensors_of(program, edges, seed)
    if cpu.obstacle(whole, edges, tensors):
        return
    for have, want in zip(cpu.run(whole, edges, tensors), reference.run(whole, edges, tensors), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)


def hub(width: int) -> tuple[Edges, list[Tensor]]:
    edges = edges_of(3, num_rows=40, num_other=50, num_edges=900)
    return edges, tensors_of(two_maps(width), edges, 3, torch.float32)


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_the_core_stores_and_gives_the_same_bits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = two_maps(96, kind)
    edges, tensors = hub(96)
    found = []
    for ratios in (keep.OPERATIONS_PER_BYTE, {}):
        monkeypatch.setattr(keep, "OPERATIONS_PER_BYTE", ratios)
        given = [each.clone().requires_grad_() for each in tensors]
        out, _ = reduce_edges(program, edges, lambda: transposed(edges), given)
        saved = sum(each.numel() for each in out.grad_fn.saved_tensors)  # type: ignore[union-attr]
        out.square().sum().backward()
        found.append((saved, [out, *(each.grad for each in given)]))
    (more, stored), (less, again) = found
    assert more >= less + edges.num_edges * 96, "something of edges was stored"
    assert all(torch.equal(a, b) for a, b in zip(stored, again))  # type: ignore[arg-type]


def test_what_the_backend_cannot_store_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program = two_maps(96)
    edges, tensors = hub(96)
    backend = run._backend(CPU)
    plain = backend.obstacle

    def refuses(each: Program, *rest: object) -> str:
        return "no" if any(result.kind == "edge" for result in each.results) else str(plain(each, *rest))

    monkeypatch.setattr(backend, "obstacle", refuses)
    given = [each.requires_grad_() for each in tensors]
    out, _ = reduce_edges(program, edges, lambda: transposed(edges), given)
    most = max(len(each) for each in out.grad_fn.saved_tensors)  # type: ignore[union-attr]
    assert most < edges.num_edges
    out.sum().backward()
    assert given[0].grad is not None


def test_what_is_always_alike_asks_not_for_the_memory_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    program = two_maps(128)
    wanted = all_of(program)
    chosen = kept(program, wanted, MANY, torch.float32, CPU)
    monkeypatch.setattr(keep, "_whole", keep._free)
    monkeypatch.setattr(keep, "_free", lambda device: 0)
    assert kept(program, wanted, MANY, torch.float32, CPU) == ()
    assert kept(program, wanted, MANY, torch.float32, CPU, always_alike=True) == chosen != ()


def test_what_backward_cannot_read_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program = two_maps(96)
    edges, tensors = hub(96)
    backend = run._backend(CPU)
    plain = backend.obstacle

    def refuses(each: Program, *rest: object) -> str:
        return "no" if any(load.source == "edge" for load in each.loads) else str(plain(each, *rest))

    tensors = [each.requires_grad_() for each in tensors]
    assert run._kept(program, all_of(program), edges, tensors)
    monkeypatch.setattr(backend, "obstacle", refuses)
    assert run._kept(program, all_of(program), edges, tensors) == ()


def test_values_of_rows_alone_are_never_stored_for_edges() -> None:
    made = Builder()
    a, b, weight = made.load("other", (1, 128)), made.load("row", (1, 128)), made.load("weight", (128, 128))
    mapped = made.step("tanh", made.dot(made.step("tanh", b), weight))
    program = made.program([Result("max", (made.step("mul", a, mapped),))])
    assert choice(program, all_of(program), 16, torch.float32, 24.0) == ()
