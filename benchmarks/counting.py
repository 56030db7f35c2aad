"""What passes over edges need: bytes that must move and operations, counted from their programs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.compiler.gradient import gradients
from weft.compiler.program import Program
from weft.graph.message.block import Block
from weft.graph.message.compiled import watched

SIZE = 4
"""Bytes of a number."""


@dataclass(frozen=True)
class Needed:
    """Bytes, operations of matrix products, and other operations."""

    bytes: float
    products: float
    steps: float

    def __add__(self, other: "Needed") -> "Needed":
        return Needed(self.bytes + other.bytes, self.products + other.products, self.steps + other.steps)


def of_messages(call: Callable[[], Any], block: Block) -> Needed:
    """Return what the compiled messages of a call need, forward and backward with all gradients."""
    with watched() as asked:
        call()
    total = Needed(0, 0, 0)
    for each in asked:
        assert not isinstance(each.found, str), each.found
        for reduction in each.found[0].reductions:
            assert reduction.program is not None, reduction.reason
            total += _both_ways(reduction.program, block)
    return total


def _both_ways(program: Program, block: Block) -> Needed:
    passes = gradients(program, [True] * len(program.loads))
    found = [each for each in (program, passes.of_rows, passes.of_others) if each is not None]
    return sum((_of_pass(each, block) for each in found), Needed(0, 0, 0))


def _of_pass(program: Program, block: Block) -> Needed:
    shapes, edges, rows = program.shapes, block.num_edges, block.num_dst
    used = {each for step in program.steps for each in step.args}
    used |= {each for result in program.results for each in result.args}
    moved = edges * SIZE  # the other end of each edge
    for number, load in enumerate(program.loads):
        if number in used:
            times = edges if load.source in ("other", "edge") else rows if load.source == "row" else 1
            moved += times * load.shape[0] * load.shape[1] * SIZE
    products = steps = 0
    for result in program.results:
        (heads, width), columns = shapes[result.args[0]], shapes[result.args[-1]][1]
        times = edges if result.kind == "edge" else 0 if result.kind in ("shared", "weight") else rows
        moved += times * shapes[result.args[-1]][0] * columns * SIZE
        products += 2 * edges * heads * width * columns * (result.kind == "weight")
        steps += edges * heads * columns
    for step in program.steps:
        inner = shapes[step.args[0]][1] if step.op in ("dot", "dot_t") else 0
        products += 2 * edges * step.shape[0] * step.shape[1] * inner
        steps += 0 if inner or step.op == "constant" else edges * step.shape[0] * step.shape[1]
    return Needed(moved, products, steps)
