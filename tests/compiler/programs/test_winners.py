"""The gradient of an extreme by the edges that attain it, against the passes over all edges."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch
from tests.support.programs import edges_of, tensors_of, transposed
from torch import Tensor

from weft.compiler.programs import reference, run, winners
from weft.compiler.programs.program import TIED, Builder, Edges, Program, Result


def extreme(
    kind: str = "max",
    *,
    width: int = 3,
    columns: int = 5,
    turned: bool = False,
    bias: str = "shared",
    source: str = "row",
) -> Program:
    """Return a program as EdgeConv's: an extreme of W relu(a · c + b), and what is added to it."""
    made = Builder()
    a, b = made.load(source, (1, width)), made.load("other", (1, width))  # type: ignore[arg-type]
    scale = made.load("shared", (1, width))
    weight = made.load("weight", (width, columns) if turned else (columns, width))
    added = [made.load(bias, (1, columns))] if bias else []  # type: ignore[arg-type]
    inner = made.step("relu", made.step("add", made.step("mul", a, scale), b))
    value = (made.dot if turned else made.dot_t)(inner, weight)
    for each in added:
        value = made.step("add", each, value)
    return made.program([Result(kind, (value,))])  # type: ignore[arg-type]


def by_the_reference(monkeypatch: pytest.MonkeyPatch, *, on: bool) -> None:
    """Run all programs by the reference, as a backend that takes gradients by winners or not."""
    backend = SimpleNamespace(
        run=reference.run, obstacle=lambda *_: "", WINNERS=on, KEEPS_FLAGS=True, JOINS_PASSES=False
    )
    monkeypatch.setattr(run, "_backend", lambda device: backend)


def step(program: Program, edges: Edges, tensors: Sequence[Tensor]) -> list[Tensor]:
    leaves = [each.clone().requires_grad_() for each in tensors]
    out, count = run.reduce_edges(program, edges, lambda: transposed(edges), leaves)
    assert count is not None
    draw = torch.Generator().manual_seed(7)
    grad = torch.randn(out.shape, generator=draw, dtype=torch.float64).to(out)
    return [out.detach(), count, *torch.autograd.grad(out, leaves, grad)]


def both(
    program: Program, edges: Edges, tensors: Sequence[Tensor], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Tensor], list[Tensor]]:
    """Return results and gradients by winners, and by passes over all edges."""
    found = []
    for on in (True, False):
        by_the_reference(monkeypatch, on=on)
        found.append(step(program, edges, tensors))
    return found[0], found[1]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of tied rows each time that gradients are taken by winners."""
    found: list[int] = []
    held, tied = run.gradients_of_winners, run.tied_rows

    def counted(who: Tensor) -> Tensor:
        found.append(len(tied(who)))
        return tied(who)

    monkeypatch.setattr(run, "tied_rows", counted)
    monkeypatch.setattr(run, "gradients_of_winners", held)
    return found


@pytest.mark.parametrize("bias", ["shared", "row", ""])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_gradients_by_winners_equal_those_of_all_edges(
    kind: str, turned: bool, bias: str, monkeypatch: pytest.MonkeyPatch, taken: list[int]
) -> None:
    program = extreme(kind, turned=turned, bias=bias)
    edges = edges_of(3, num_edges=60)
    have, want = both(program, edges, tensors_of(program, edges, 3), monkeypatch)
    assert taken == [0]
    for a, b in zip(have, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_rows_that_several_edges_attain_take_all_their_edges(
    monkeypatch: pytest.MonkeyPatch, taken: list[int]
) -> None:
    program = extreme()
    edges = edges_of(3, num_edges=60)
    tensors = tensors_of(program, edges, 3)
    tensors[1][3] = tensors[1][4]  # two nodes alike
    have, want = both(program, edges, tensors, monkeypatch)
    assert 0 < taken[0] < edges.num_rows
    for a, b in zip(have, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_what_is_infinite_in_a_row_that_no_edge_reads_reaches_no_gradient(
    monkeypatch: pytest.MonkeyPatch, taken: list[int]
) -> None:
    program = extreme()
    edges = edges_of(3, num_edges=60)
    edges.other[edges.other == 0] = 1
    edges.other[edges.other == edges.num_other - 1] = 1
    tensors = tensors_of(program, edges, 3)
    tensors[1][0], tensors[1][-1] = torch.inf, torch.nan  # where numbers of no winner would point
    assert (edges.indptr.diff() == 0).any()
    have, want = both(program, edges, tensors, monkeypatch)
    assert taken
    for a, b in zip(have, want, strict=True):
        assert a.isfinite().all()
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_where_most_rows_are_tied_all_take_the_passes_over_edges(
    monkeypatch: pytest.MonkeyPatch, taken: list[int]
) -> None:
    program = extreme()
    edges = edges_of(3, num_edges=60)
    tensors = tensors_of(program, edges, 3)
    tensors[1][:] = tensors[1][:1]
    have, want = both(program, edges, tensors, monkeypatch)
    assert taken[0] > 0
    assert all(torch.equal(a, b) for a, b in zip(have, want, strict=True))


def test_parallel_edges_are_one_winner() -> None:
    edges = Edges(torch.tensor([0, 3, 5, 5]), torch.tensor([4, 4, 1, 2, 3], dtype=torch.int32), 5)
    made = Builder()
    value = made.load("other", (1, 2))
    program = made.program([Result("max", (value,)), Result("winner", (value,))])
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0], [3.0, 2.0], [3.0, 1.0], [2.0, 1.0]]).unsqueeze(1)
    out, count, who = reference.run(program, edges, [x])
    assert out[:, 0].tolist() == [[2.0, 1.0], [3.0, 2.0], [0.0, 0.0]]
    assert count[:, 0].tolist() == [[2, 3], [2, 1], [0, 0]]
    assert who[:, 0].tolist() == [[4, TIED], [TIED, 2], [-1, -1]]


def test_only_wanted_gradients_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    program, edges = extreme(), edges_of(3, num_edges=60)
    tensors = tensors_of(program, edges, 3)
    for wanted in range(len(tensors)):
        found = []
        for on in (True, False):
            by_the_reference(monkeypatch, on=on)
            leaves = [each.clone().requires_grad_(place == wanted) for place, each in enumerate(tensors)]
            out, _ = run.reduce_edges(program, edges, lambda: transposed(edges), leaves)
            found.append(torch.autograd.grad(out.sin().sum(), leaves[wanted])[0])
        torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "program",
    [
        extreme("sum"),
        extreme(source="edge"),
        extreme(columns=1),
        extreme(width=1),
        extreme(width=80, columns=80),
        extreme(bias="other"),
    ],
    ids=["sum", "edges", "column", "narrow", "large", "bias"],
)
def test_other_programs_have_no_winners(program: Program) -> None:
    assert winners.winners(program, (True,) * len(program.loads)) is None


def test_short_rows_and_padded_edges_take_all_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    by_the_reference(monkeypatch, on=True)
    monkeypatch.setattr(run, "gradients_of_winners", None)
    program = extreme()
    for edges in (edges_of(3, num_edges=20), Edges(*vars(edges_of(3, num_edges=60)).values())):
        padded = Edges(edges.indptr, edges.other, edges.num_other, padded=edges.num_edges > 20)
        step(program, padded, tensors_of(program, padded, 3))
