"""Random programs of the compiler, tensors for them, and odd graphs to run them on."""

import random

import torch
from torch import Tensor

from weft import kernels
from weft.compiler.programs.program import Builder, Edges, Program, Result, Source

HEADS, WIDTH = 2, 3
_SMOOTH = (
    "neg",
    "sigmoid",
    "tanh",
    "relu",
    "abs",
    "sin",
    "cos",
    "erf",
    "exp",
    "log1p_abs",
    "sqrt_abs",
    "square",
)
_BINARY = ("add", "sub", "mul", "div_safe", "maximum", "minimum")


def random_program(seed: int, kind: str, *, steps: int = 8, weights: bool = True) -> Program:
    """Return a program of a few loads of each source and random steps, smooth enough to differentiate."""
    draw = random.Random(seed)
    made = Builder()
    shapes = [(HEADS, WIDTH), (HEADS, 1), (1, WIDTH), (1, 1)]
    sources: list[Source] = ["row", "other", "edge", "shared", "other", "row"]
    values = [
        made.load(source, (HEADS, WIDTH) if i < 2 else draw.choice(shapes))
        for i, source in enumerate(sources)
    ]
    weight = made.load("weight", (WIDTH, WIDTH))
    for _ in range(steps):
        values.append(_random_step(made, draw, values, weight if weights else None))
    whole = made.step("add", values[-1], made.step("mul", values[0], values[1]))
    if kind != "softmax":
        return made.program([Result(kind, (whole,))])  # type: ignore[arg-type]
    score = made.step("add", made.sum_width(made.step("tanh", whole)), made.constant(0.1))
    return made.program([Result("softmax", (score, whole))])


def _random_step(made: Builder, draw: random.Random, values: list[int], weight: int | None) -> int:
    pick = draw.random()
    one, two = draw.choice(values), draw.choice(values)
    if pick < 0.12 and weight is not None and made.shape(one)[1] == WIDTH:
        return draw.choice((made.dot, made.dot_t))(one, weight)
    if pick < 0.2:
        return draw.choice((made.sum_width, made.sum_heads))(one)
    if pick < 0.28:
        mask = made.step(draw.choice(("gt", "le", "lt", "ge")), one, two)
        return made.step("where", mask, one, made.step("neg", two))
    if pick < 0.6:
        return _unary(made, draw.choice(_SMOOTH), one)
    return _binary(made, draw.choice(_BINARY), one, two)


def _unary(made: Builder, op: str, one: int) -> int:
    if op == "exp":
        return made.step("exp", made.step("tanh", one))
    if op == "square":
        return made.step("pow", one, made.constant(2.0))
    if op.endswith("_abs"):
        return made.step(op.removesuffix("_abs"), made.step("add", made.step("abs", one), made.constant(0.5)))
    return made.step(op, one)


def _binary(made: Builder, op: str, one: int, two: int) -> int:
    if op == "div_safe":
        return made.step("div", one, made.step("add", made.step("abs", two), made.constant(0.5)))
    return made.step(op, one, two)


def edges_of(seed: int, *, num_rows: int = 9, num_other: int = 7, num_edges: int = 30) -> Edges:
    """Return a graph with empty rows, a hub and parallel edges; one in ten has no edge at all."""
    draw = torch.Generator().manual_seed(seed)
    if seed % 10 == 0:
        num_edges = 0
    ends = torch.randint(0, num_rows, (num_edges,), generator=draw)
    ends[: num_edges // 3] = 4  # the hub
    ends[ends == 2] = 5  # an empty row
    rows = torch.sort(ends).values
    other = torch.randint(0, num_other, (num_edges,), generator=draw, dtype=torch.int32)
    indptr = torch.zeros(num_rows + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(rows, minlength=num_rows).cumsum(0)
    return Edges(indptr, other, num_other)


def transposed(edges: Edges) -> Edges:
    """Return the CSR of the other ends."""
    back = kernels.transpose_csr(edges.indptr, edges.other, edges.num_other)
    return Edges(back.indptr, back.indices, edges.num_rows, back.edges)


def tensors_of(program: Program, edges: Edges, seed: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Return random tensors for the loads of a program."""
    draw = torch.Generator().manual_seed(seed + 1)
    rows = {"row": (edges.num_rows,), "other": (edges.num_other,), "edge": (edges.num_edges,)}
    return [
        torch.randn(*rows.get(load.source, ()), *load.shape, generator=draw, dtype=dtype)
        for load in program.loads
    ]
