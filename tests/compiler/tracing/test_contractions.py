"""einsum and products of heads in messages: compiled to programs, equal to torch in values and gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.messages import assert_same, forms_of
from tests.support.programs import edges_of
from torch import Tensor

from weft.compiler.compile import compile_message
from weft.compiler.tracing.contractions import Contractions

HEADS, WIDTH, OUT = 3, 4, 5
EDGES = edges_of(7)


def tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


torch.manual_seed(0)
U, V = tensor(EDGES.num_other, HEADS, WIDTH), tensor(EDGES.num_rows, HEADS, WIDTH)
E = tensor(EDGES.num_edges, HEADS)
MAPS, SQUARE = tensor(HEADS, WIDTH, OUT), tensor(HEADS, WIDTH, WIDTH)
ATT, JOINED = tensor(HEADS, WIDTH), tensor(1, HEADS, 2 * WIDTH)
CAPTURED = [MAPS, SQUARE, ATT, JOINED]
einsum = torch.einsum

MESSAGES: dict[str, tuple[Callable[..., Any], str, list[str]]] = {
    "a map a head": (
        lambda u, v, e: einsum("ehf,hfo->eho", (u + v).relu(), MAPS),
        "max",
        ["add", "relu", "dot"],
    ),
    "a map a head of sources": (lambda u, v, e: einsum("ehf,hfo->eho", u, MAPS), "sum", []),
    "a map a head in another order": (
        lambda u, v, e: einsum("hfo,ehf->eho", MAPS, (u + v).tanh()),
        "sum",
        ["add", "tanh"],
    ),
    "a score of both ends": (
        lambda u, v, e: (einsum("ehf,ehf->eh", u, v), u),
        "softmax",
        ["mul", "sum_width"],
    ),
    "a score by one vector per head": (
        lambda u, v, e: (einsum("ehf,hf->eh", (u - v).tanh(), ATT), u),
        "softmax",
        ["sub", "tanh", "mul", "sum_width"],
    ),
    "a product and a sum": (
        lambda u, v, e: (((u - v).tanh() * ATT).sum(-1), u),
        "softmax",
        ["sub", "tanh", "mul", "sum_width"],
    ),
    "joined ends times a vector": (
        lambda u, v, e: (F.leaky_relu((torch.cat([u, v], -1) * JOINED).sum(-1), 0.2), u),
        "softmax",
        ["add", "mul", "gt", "where"],
    ),
    "a bilinear score": (
        lambda u, v, e: (einsum("ehf,hfo,eho->eh", u, SQUARE, v), u),
        "softmax",
        ["mul", "sum_width"],
    ),
    "a factor a head": (lambda u, v, e: einsum("eh,ehf->ehf", e, u * v), "sum", ["mul", "mul"]),
    "a sum over heads": (
        lambda u, v, e: einsum("ehf,hfo->eo", (u + v).relu(), MAPS),
        "max",
        ["add", "relu", "dot"],
    ),
    "a matrix product a head": (
        lambda u, v, e: ((u + v).relu().unsqueeze(2) @ MAPS).squeeze(2),
        "max",
        ["add", "relu", "dot"],
    ),
    "a matrix product of edges": (
        lambda u, v, e: (u.unsqueeze(2) @ v.unsqueeze(3)).flatten(1) * e,
        "sum",
        ["mul", "sum_width", "mul"],
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_contractions_equal_torch_and_become_programs(name: str) -> None:
    message, reduce, steps = MESSAGES[name]
    given = {"src": [U], "dst": [V], "edge": [E]}
    assert_same(message, EDGES, reduce, CAPTURED, **given)
    (reduction,) = compile_message(message, forms_of(**given), reduce).reductions
    assert reduction.program is not None, reduction.reason
    assert [step.op for step in reduction.program.steps if step.op != "constant"] == steps


def test_scores_of_joined_ends_are_made_on_nodes() -> None:
    message, reduce, _ = MESSAGES["joined ends times a vector"]
    (reduction,) = compile_message(message, forms_of(src=[U], dst=[V], edge=[E]), reduce).reductions
    assert reduction.program is not None
    shapes = [(load.source, load.shape) for load in reduction.program.loads]
    assert shapes == [("other", (HEADS, 1)), ("row", (HEADS, 1)), ("other", (HEADS, WIDTH))]


LETTERS = {"e": 11, "h": 3, "f": 4, "o": 2, "i": 1}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("hfoi"), max_size=3, unique=True), min_size=1, max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.permutations("hfoi"),
    st.integers(0, 3),
)
def test_any_contraction_equals_einsum_or_is_left_alone(
    given_letters: list[list[str]], has_edges: list[bool], order: list[str], count: int
) -> None:
    letters = ["".join(["e"] * edge + each) for each, edge in zip(given_letters, [True, *has_edges[1:]])]
    known = set("".join(letters))
    out = "e" + "".join(each for each in order if each in known)[:count]
    tensors = [torch.randn([LETTERS[each] for each in one], dtype=torch.float64) for one in letters]
    equation = f"{','.join(letters)}->{out}"
    made = Contractions(LETTERS["e"])._einsum(equation, *tensors)
    if made is not None:
        torch.testing.assert_close(made, torch.einsum(equation, *tensors), rtol=1e-10, atol=1e-10)
    if len(tensors) == 1:
        assert made is not None


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ef,gf->eg", [(11, 4), (11, 4)]),  # edges with edges
        ("fe,f->e", [(4, 11), (4,)]),  # edges are not first
        ("e...,f->e", [(11, 4), (4,)]),
        ("ef,e->f", [(11, 4), (11,)]),  # a sum over edges
        ("eff->ef", [(11, 4, 4)]),  # a diagonal
        ("ef,o->efo", [(11, 4), (2,)]),  # an outer product
        ("ehf,hfo->eh", [(11, 3, 4), (3, 4, 5)]),  # columns of the matrices are added up
        ("ehf,hfo->ef", [(11, 3, 4), (3, 4, 5)]),
    ],
)
def test_what_is_no_contraction_of_an_edge_is_left_to_torch(
    equation: str, shapes: list[tuple[int, ...]]
) -> None:
    tensors = [torch.randn(shape) for shape in shapes]
    assert Contractions(11)._einsum(equation, *tensors) is None
