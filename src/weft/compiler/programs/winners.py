"""The gradient of an extreme of products, of the edges that attain it alone.

Of [rows, n] numbers that are the largest of their row's edges each has, as a rule, one edge whose gradient is
that of one column: products of these with a weight are single rows of it. A pass over n "edges" a row, one a
column, whose other end is the column's winner, takes the place of products with all edges. Rows in which
edges of different ends attain an extreme are left to the passes over all edges.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from weft import kernels
from weft.compiler.programs.cost import EdgeCounts
from weft.compiler.programs.gradient import Adjoint
from weft.compiler.programs.program import TIED, Builder, Edges, Program, Result, Step

MOST = 64 * 64
"""Numbers of the weight: all of them lie in registers."""
LEAST_DEGREE = 4
"""Edges of a row, on average, from which on this pays."""


@dataclass(frozen=True)
class Winners:
    """Passes in the place of those over all edges.

    `of_rows` runs over n edges a row. It takes the tensors of the forward pass, then the gradient of each
    winner [rows · n, 1, 1] and the weight with a row for each column, as a load by place; and gives the
    gradients of the loads in `row_places`, and of the weight, one row per column, where `weighs`.
    `of_others` runs over the transposed CSR and takes the tensors of the forward pass, then the share of each
    edge that attains an extreme, and the winners; it gives those of `other_places`. `added` are loads that
    are added to the product.
    """

    of_rows: Program
    row_places: tuple[int, ...]
    weight: int
    turned: bool
    weighs: bool
    added: tuple[int, ...]
    of_others: Program | None
    other_places: tuple[int, ...]

    def over(self, columns: int, counts: EdgeCounts) -> list[tuple[Program, EdgeCounts]]:
        """Return the passes, and how many rows and edges each has."""
        passes = [(self.of_rows, EdgeCounts(counts.rows, counts.others, counts.rows * columns))]
        return passes + ([] if self.of_others is None else [(self.of_others, counts.swapped)])


@lru_cache(maxsize=1024)
def winners(program: Program, wanted: tuple[bool, ...]) -> Winners | None:
    """Return the passes by winners; None where the program is no extreme of products."""
    found = _product(program)
    if found is None:
        return None
    number, added = found
    step = program.steps[number - len(program.loads)]
    inner, weight = step.args
    behind = _behind(program, inner)
    dots = [each for each in behind if _is_dot(program, each)]
    sources = {program.loads[each].source for each in behind if each < len(program.loads)}
    columns, rows = step.shape[1], program.shapes[inner][1]
    if dots or not sources <= {"row", "other", "shared"} or weight in behind or min(columns, rows) < 2:
        return None
    if "other" not in sources or columns * rows > MOST or step.shape[0] > 1 or "weight" in sources:
        return None
    added = tuple(each for each in added if wanted[each])
    of_rows, row_places = _over_winners(program, inner, behind, wanted, rows, weighs=wanted[weight])
    of_others, other_places = _over_edges(program, number, wanted)
    turned = step.op == "dot"
    return Winners(of_rows, row_places, weight, turned, wanted[weight], added, of_others, other_places)


def _product(program: Program) -> tuple[int, tuple[int, ...]] | None:
    """Return the product that a program takes the extreme of, and the loads that are added to it."""
    (result,) = program.results
    if result.kind not in ("max", "min"):
        return None
    value, added, shape = result.args[0], [], program.shapes[result.args[0]]
    while not _is_dot(program, value):
        step = _step(program, value)
        if step is None or step.op != "add":
            return None
        loads = [each for each in step.args if each < len(program.loads) and program.shapes[each] == shape]
        loads = [each for each in loads if program.loads[each].source in ("row", "shared")]
        if len(loads) != 1:
            return None
        added += loads
        value = step.args[0] if step.args[1] == loads[0] else step.args[1]
    return value, tuple(added)


def _step(program: Program, value: int) -> Step | None:
    first = len(program.loads)
    return None if value < first else program.steps[value - first]


def _is_dot(program: Program, value: int) -> bool:
    step = _step(program, value)
    return step is not None and step.op in ("dot", "dot_t")


def _behind(program: Program, value: int) -> set[int]:
    """Return a value and all that it is made of."""
    found, stack = set(), [value]
    while stack:
        each = stack.pop()
        step = _step(program, each)
        stack += [] if each in found or step is None else step.args
        found.add(each)
    return found


def _over_winners(
    program: Program, inner: int, behind: set[int], wanted: Sequence[bool], width: int, *, weighs: bool
) -> tuple[Program, tuple[int, ...]]:
    """Return the pass over winners, and the loads whose gradients it gives before that of the weight."""
    made, first = Builder(), len(program.loads)
    for load in program.loads:
        made.load(load.source, load.shape)
    share, row = made.load("edge", (1, 1)), made.load("place", (1, width))
    numbers, steps = list(range(first)), []
    for value, step in enumerate(program.steps, first):
        if value not in behind:
            numbers.append(-1)
            continue
        step = replace(step, args=tuple(numbers[each] for each in step.args))
        numbers.append(made.repeat(step))
        steps.append((numbers[-1], step))
    adjoint = Adjoint(made, steps)
    adjoint.add(numbers[inner], made.step("mul", share, row))
    adjoint.sweep()
    found = [
        (place, each)
        for place, load in enumerate(program.loads)
        if wanted[place] and place in behind and load.source in ("row", "shared")
        for each in adjoint.results(place)
    ]
    results = [each for _, each in found]
    if weighs:
        results.append(Result("place", (made.step("mul", numbers[inner], share),)))
    return made.program(results), tuple(place for place, _ in found)


def _over_edges(
    program: Program, number: int, wanted: Sequence[bool]
) -> tuple[Program | None, tuple[int, ...]]:
    """Return the pass over the transposed CSR: an edge attains what its other end is the winner of."""
    made, first = Builder(), len(program.loads)
    for load in program.loads:
        made.load(load.source, load.shape)
    shape = program.shapes[number]
    share, who = made.load("row", shape), made.load("row", shape)
    numbers, steps = list(range(first)), []
    for step in program.steps:
        step = replace(step, args=tuple(numbers[each] for each in step.args))
        numbers.append(made.repeat(step))
        steps.append((numbers[-1], step))
    adjoint = Adjoint(made, steps)
    won = made.step("is_other", who)
    adjoint.add(numbers[number], made.step("where", won, share, made.constant(0.0)))
    adjoint.sweep()
    others = [place for place, load in enumerate(program.loads) if wanted[place] and load.source == "other"]
    found = [(place, each) for place in others for each in adjoint.results(place)]
    places = tuple(place for place, _ in found)
    return (made.program([each for _, each in found]).swapped if found else None), places


def tied_rows(who: Tensor) -> Tensor:
    """Return the rows of an extreme that edges of several other ends attain; asks the device."""
    return (who == TIED).flatten(1).any(1).nonzero().squeeze(1)


def edges_of_rows(edges: Edges, rows: Tensor) -> Edges:
    """Return the CSR of some of the rows, in their order."""
    degree = edges.indptr.diff()[rows]
    indptr = torch.nn.functional.pad(degree.cumsum(0), (1, 0))
    first = torch.repeat_interleave(edges.indptr[rows] - indptr[:-1], degree)
    return Edges(indptr, edges.other[first + torch.arange(len(first), device=rows.device)], edges.num_other)


def transposed_of(edges: Edges) -> Edges:
    """Return the same edges by their other ends."""
    back = kernels.transpose_csr(edges.indptr, edges.other, edges.num_other)
    return Edges(back.indptr, back.indices, edges.num_rows, back.edges)


def with_winner(program: Program) -> Program:
    """Return a program that tells the winners of its extreme, too."""
    (result,) = program.results
    return Program(program.loads, program.steps, (result, Result("winner", result.args)))


Run = Callable[[Program, Edges, Sequence[Tensor]], list[Tensor]]


def gradients_of_winners(
    passes: Winners,
    edges: Edges,
    transposed: Callable[[], Edges],
    tensors: Sequence[Tensor],
    share: Tensor,
    grad: Tensor,
    who: Tensor,
    run: Run,
) -> list[Tensor | None]:
    """Return the gradients of all that rows with one winner a column give."""
    grads: list[Tensor | None] = [None] * len(tensors)
    weight = tensors[passes.weight]
    whole = torch.where(who >= 0, grad, 0.0)
    columns = whole.shape[2]
    at = torch.arange(edges.num_rows + 1, device=who.device) * columns
    each = Edges(at, who.flatten(), edges.num_other, places=columns)
    by_column = (weight.t() if passes.turned else weight).unsqueeze(1)
    made = run(passes.of_rows, each, [*tensors, whole.view(-1, 1, 1), by_column])
    if passes.weighs:
        found = made.pop().squeeze(1)
        grads[passes.weight] = found.t() if passes.turned else found
    pairs = list(zip(passes.row_places, made))
    if passes.of_others is not None:
        pairs += zip(passes.other_places, run(passes.of_others, transposed(), [*tensors, share, who]))
    for place in passes.added:
        pairs.append((place, whole if tensors[place].dim() == 3 else whole.sum(0)))
    for place, found in pairs:
        known = grads[place]
        grads[place] = found if known is None else known + found
    return grads
