"""A compiled message in words: where each operator runs, what it costs, and what the edges are left with."""

from collections.abc import Iterator, Mapping

from torch import fx

from weft.compiler.annotate import movement, residency
from weft.compiler.compile import Compiled, Reduction
from weft.compiler.graphs import item_shape, name_of, reduced, value, width
from weft.compiler.match import match
from weft.sizes import shown

_RUNS = {
    "shared": "once",
    "source": "on sources",
    "destination": "on destinations",
    "edge": "on edges",
    "pair": "on edges",
    "reduced": "after, on destinations",
}


def described(made: Compiled, rows: Mapping[str, int]) -> Iterator[str]:
    """Give lines on a message; `rows` is the number of sources, destinations and edges of a block."""
    counts = {**rows, "pair": rows["edge"], "reduced": rows["destination"], "shared": 1}
    for node in made.graph.nodes:
        if node.op == "call_function":
            yield "  " + _operator(node, counts)
    for number, reduction in enumerate(made.reductions):
        yield f"  reduction {number + 1}: {_reduction(reduction)}"


def _operator(node: fx.Node, counts: Mapping[str, int]) -> str:
    where = residency(node)
    if node.target is reduced:
        size = f"{counts['destination']:,} x {width(node)}"
        return f"{'reduce by ' + str(node.args[0]):24} {'over edges':24} {size}"
    numbers = counts[where] * width(node)
    shape = "x".join(map(str, item_shape(node))) or "1"
    size = f"{counts[where]:,} x {shape}, {shown(numbers * value(node).element_size())}"
    return f"{name_of(node):24} {_RUNS[where]:24} {movement(node):12} {size}"


def _reduction(reduction: Reduction) -> str:
    if reduction.program is None:
        return f"a smaller message, in plain torch: {reduction.reason}"
    kernel = match(reduction.program)
    loads = [f"{load.source} {load.shape[0]}x{load.shape[1]}" for load in reduction.program.loads]
    steps = [step.op for step in reduction.program.steps if step.op != "constant"]
    how = (
        f"kernel {kernel.name}"
        if kernel is not None
        else f"a program of {len(steps)} steps, made again in backward"
    )
    return f"{how}; reads {', '.join(loads)}; {' '.join(steps) or 'no step'}"
