"""A message as it was written and as it was compiled, in plain numbers: what `weft explain` shows.

Every operator says where its rows live, how many there are and how wide, and what it costs; those that are
fused say into which kernel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, fx

from weft.compiler.annotate import movement, residency
from weft.compiler.compile import Compiled, Reduction
from weft.compiler.graphs import close, has_rows, item_shape, name_of, reduced, reductions, value, width
from weft.compiler.programs.cost import (
    EdgeCounts,
    Work,
    operations_again,
    operator_cost,
    program_cost,
    total,
    values_of,
)
from weft.compiler.programs.keep import Kept, kept, kept_bytes, storing
from weft.compiler.programs.match import match
from weft.compiler.programs.program import Program
from weft.compiler.programs.run import passes_of, winners_of
from weft.compiler.programs.winners import Winners, with_winner
from weft.compiler.tracing.axes import rows_first
from weft.compiler.tracing.captures import NotCompiled, explained
from weft.compiler.tracing.scatters import take_rows
from weft.compiler.tracing.trace import TURN, Form, trace


@dataclass(frozen=True)
class Operator:
    """One operator, or an input of a message."""

    name: str
    where: str
    """What its value is a function of; see `annotate`."""
    movement: str
    rows: int
    shape: tuple[int, ...]
    """Of one row."""
    cost: Work
    """None at all where it is part of a kernel."""
    inputs: tuple[int, ...]
    """The operators whose values it takes, by place."""
    kernels: tuple[int, ...] = ()
    """The kernels that it is fused into, by place."""


@dataclass(frozen=True)
class Kernel:
    """One reduction over the edges of each row, with all that is fused into it."""

    name: str
    """Of a kernel of the layers; `program`; or `torch`, where a smaller message runs as it is."""
    reduce: str
    reason: str
    """Why it is not a program."""
    reads: tuple[tuple[str, tuple[int, int]], ...]
    """What is loaded: of which rows, how many heads and how wide."""
    steps: tuple[str, ...]
    forward: Work
    backward: Work | None
    """Of all passes; None where a kernel has its own, torch does it or nothing has a gradient."""
    kept: int
    """Bytes that stay for backward: rows that were read, the result, and values of edges that are stored."""
    stored: tuple[tuple[str, tuple[int, int]], ...]
    """The steps whose values of edges are stored, with heads and width; `flags` of one pass of backward for
    the other, a byte each."""
    again: int
    """Operations of backward that make values of edges again."""


@dataclass(frozen=True)
class Description:
    """A message as it was compiled."""

    operators: tuple[Operator, ...]
    kernels: tuple[Kernel, ...]
    cost: Work
    """That of a forward pass."""


_INDEX = 4
"""Bytes of the number of a winner."""
Obstacle = Callable[[Program], str]
"""Why no backend runs a program; "" where one does."""


def written(
    message: Callable[..., object],
    forms: Sequence[Form],
    reduce: str,
    sizes: EdgeCounts,
    scratch: frozenset[str] = frozenset(),
) -> tuple[Operator, ...]:
    """Return a message as it was written, on all edges at once; nothing where it cannot be recorded."""
    try:
        with TURN, torch.inference_mode(False), explained("rewriting"):
            graph = trace(message, forms, scratch=scratch).graph
            rows_first(graph)
            take_rows(graph)
            close(graph, reduce)
    except NotCompiled:
        return ()
    found = _operators(graph, sizes, partial(_rows_as_written, sizes), {})
    return tuple(_gathered(each, node) for each, node in zip(found, _told(graph), strict=True))


def _gathered(operator: Operator, node: fx.Node) -> Operator:
    """Return an input of one end as what makes one row per edge of it."""
    if operator.movement != "input" or operator.where not in ("source", "destination"):
        return operator
    moved = operator.rows * width(node) * value(node).element_size()
    return replace(operator, name=f"gather {operator.where}", movement="gather", cost=Work(moved, moved))


def described(
    made: Compiled,
    inputs: Sequence[Tensor],
    sizes: EdgeCounts,
    device: torch.device,
    obstacle: Obstacle,
    pairs: int = 0,
) -> Description:
    """Return a compiled message on a block of some size; `inputs` are what it takes in such a call.

    `pairs` is the number of (relation, source) pairs, where its sources are such.
    """
    operators: list[Operator] = []
    kernels: list[Kernel] = []
    first = made.by_relation
    if first is not None:
        operators += _operators(first.graph, sizes, partial(_rows_compiled, sizes), {})
        sizes = replace(sizes, others=pairs)
    for part in (*made.inner, made):
        more, own = _described(part, inputs, _Setting(sizes, part.dtype, device), obstacle)
        if first is not None:
            more = tuple(_of_pairs(*each) for each in zip(more, _told(part.graph), strict=True))
        operators += [_after(each, len(operators), len(kernels)) for each in more]
        kernels += own
    cost = total([*(each.cost for each in operators), *(each.forward for each in kernels)])
    return Description(tuple(operators), tuple(kernels), cost)


def _of_pairs(operator: Operator, node: fx.Node) -> Operator:
    """Return an operator of sources as one of (relation, source) pairs, which gather what they read."""
    return replace(_gathered(operator, node), where="relation") if operator.where == "source" else operator


def _after(operator: Operator, operators: int, kernels: int) -> Operator:
    """Return an operator of a part that comes after some operators and kernels of others."""
    inputs = tuple(each + operators for each in operator.inputs)
    return replace(operator, inputs=inputs, kernels=tuple(each + kernels for each in operator.kernels))


def _described(
    made: Compiled, inputs: Sequence[Tensor], at: "_Setting", obstacle: Obstacle
) -> tuple[tuple[Operator, ...], list[Kernel]]:
    fused: dict[fx.Node, tuple[int, ...]] = {}
    kernels, trained = [], _trained(made, inputs)
    for place, reduction in enumerate(made.reductions):
        loads = [made.made[each] for each in reduction.loads]
        reason = reduction.reason if reduction.program is None else obstacle(reduction.program)
        wanted = tuple(trained[each] for each in loads)
        kernels.append(_kernel(reduction, reason, wanted, at))
        if not reason:
            _fuse(reductions(made.graph)[place], set(loads), place, fused)
    return _operators(made.graph, at.counts, partial(_rows_compiled, at.counts), fused), kernels


def _operators(
    graph: fx.Graph,
    sizes: EdgeCounts,
    rows: Callable[[fx.Node], int],
    fused: Mapping[fx.Node, tuple[int, ...]],
) -> tuple[Operator, ...]:
    places: dict[fx.Node, int] = {}
    found: list[Operator] = []
    for node in _told(graph):
        places[node] = len(found)
        inside = fused.get(node, ())
        cost = Work() if inside or node.op == "placeholder" else _cost(node, rows, sizes)
        taken = tuple(places[each] for each in node.all_input_nodes)
        shape = item_shape(node) if len(values_of(node)) == 1 else ()
        found.append(
            Operator(_name(node), residency(node), _movement(node), rows(node), shape, cost, taken, inside)
        )
    return tuple(found)


def _told(graph: fx.Graph) -> list[fx.Node]:
    """Return the operators of a graph and the inputs that they read."""
    return [node for node in graph.nodes if node.op == "call_function" or node.users]


def _cost(node: fx.Node, rows: Callable[[fx.Node], int], sizes: EdgeCounts) -> Work:
    if node.target is not reduced:
        return operator_cost(node, rows)
    numbers = sizes.edges * sum(width(each) for each in node.all_input_nodes)
    size = value(node).element_size()
    return Work(numbers * size, sizes.rows * width(node) * size, numbers)


def _name(node: fx.Node) -> str:
    if node.target is reduced:
        return f"reduce by {node.args[0]}"
    return node.name if node.op == "placeholder" else name_of(node).lstrip("_")


def _movement(node: fx.Node) -> str:
    return "input" if node.op == "placeholder" else movement(node)


def _rows_as_written(sizes: EdgeCounts, node: fx.Node) -> int:
    if residency(node) == "reduced":
        return sizes.rows
    whole = isinstance(node.meta["val"], Tensor)  # and not the parts of a split
    return sizes.edges if (has_rows(node) if whole else residency(node) != "shared") else 1


def _rows_compiled(sizes: EdgeCounts, node: fx.Node) -> int:
    rows = {"source": sizes.others, "destination": sizes.rows, "reduced": sizes.rows, "shared": 1}
    return rows.get(residency(node), sizes.edges)


def _fuse(node: fx.Node, loads: set[fx.Node], place: int, fused: dict[fx.Node, tuple[int, ...]]) -> None:
    """Note a node and what it is made of up to the loads of its kernel."""
    if place in fused.get(node, ()) or node in loads or node.op == "placeholder":
        return
    if residency(node) not in ("edge", "pair") and node.target is not reduced:
        return
    fused[node] = (*fused.get(node, ()), place)
    for each in node.all_input_nodes:
        _fuse(each, loads, place, fused)


def _trained(made: Compiled, inputs: Sequence[Tensor]) -> dict[fx.Node, bool]:
    """Return which values have a gradient."""
    given = iter([each.requires_grad for each in inputs])
    found: dict[fx.Node, bool] = {}
    for node in made.graph.nodes:
        if node.op == "placeholder":
            found[node] = node.name != "count" and next(given, True)  # after them, rows that were reduced
        else:
            found[node] = name_of(node) != "detach" and any(found[each] for each in node.all_input_nodes)
    return found


@dataclass(frozen=True)
class _Setting:
    """Where a program runs."""

    counts: EdgeCounts
    dtype: torch.dtype
    device: torch.device


def _kernel(reduction: Reduction, reason: str, wanted: tuple[bool, ...], at: _Setting) -> Kernel:
    program = reduction.program
    if program is None or reason:
        return Kernel("torch", reduction.kind, reason, (), (), Work(), None, 0, (), 0)
    known = match(program)
    reads = tuple((load.source, load.shape) for load in program.loads)
    steps = tuple(step.op for step in program.steps if step.op not in ("constant", "expand"))
    by = winners_of(program, wanted, at.counts, at.device) if known is None else None
    plain = known is None and by is None
    chosen = kept(program, wanted, at.counts, at.dtype, at.device) if plain else ()
    runs = storing(program, chosen) if by is None else with_winner(program)
    forward = program_cost(runs, at.counts, at.dtype)
    backward, again, flags = _backward(program, wanted, chosen, at, by) if known is None else (None, 0, ())
    stay = _stays(program, at) + kept_bytes(program, chosen, at.counts, at.dtype) if any(wanted) else 0
    stay += 0 if by is None else at.counts.rows * program.shapes[program.results[0].args[0]][1] * _INDEX
    first = len(program.loads)
    stored = (*((program.steps[each - first].op, program.shapes[each]) for each in chosen), *flags)
    name = "program" if known is None else known.name
    return Kernel(name, reduction.kind, "", reads, steps, forward, backward, stay, stored, again)


def _backward(
    program: Program, wanted: tuple[bool, ...], chosen: Kept, at: _Setting, by: Winners | None
) -> tuple[Work | None, int, tuple[tuple[str, tuple[int, int]], ...]]:
    """Return the cost of all passes, the operations that make values again, and the flags that they keep."""
    if not any(wanted):
        return None, 0, ()
    columns = program.shapes[program.results[0].args[0]][1]
    passes = passes_of(program, wanted, chosen, at.device)
    taken = [(passes.of_rows, at.counts), (passes.of_others, at.counts.swapped)] if by is None else []
    found, again = Work(), 0
    for each, over in taken if by is None else by.over(columns, at.counts):
        if each is not None:
            found += program_cost(each, over, at.dtype)
            again += operations_again(each, program, over)
    if by is not None:
        return found, again, ()
    assert passes.of_others is not None or not passes.flags
    flags = (("flags", passes.of_others.loads[-1].shape),) if passes.of_others and passes.flags else ()
    return found, again, flags


def _stays(program: Program, at: _Setting) -> int:
    """Return the bytes of the rows that a program reads and of its result."""
    rows = {"row": at.counts.rows, "other": at.counts.others, "edge": at.counts.edges}
    loads = sum(rows.get(load.source, 1) * load.shape[0] * load.shape[1] for load in program.loads)
    heads, wide = program.shapes[program.results[0].args[-1]]
    return (loads + at.counts.rows * heads * wide) * at.dtype.itemsize
