"""What passes over edges need on a GPU: bytes that must move and operations, counted from their programs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from weft.compiler.programs.cost import EdgeCounts, program_cost, step_operations
from weft.compiler.programs.gradient import gradients
from weft.compiler.programs.program import Program
from weft.compiler.programs.winners import Winners, winners, with_winner
from weft.graph.message.block import Block
from weft.graph.message.compiled import watched


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
            total += _both_ways(reduction.program, EdgeCounts(block.num_dst, block.num_src, block.num_edges))
    return total


def _both_ways(program: Program, sizes: EdgeCounts) -> Needed:
    wanted = (True,) * len(program.loads)
    by = winners(program, wanted)
    if by is not None:
        return _of_pass(with_winner(program), sizes) + _by_winners(by, program, sizes)
    passes = gradients(program, wanted, flags=True)
    total = _of_pass(program, sizes)
    if passes.of_rows is not None:
        total += _of_pass(passes.of_rows, sizes)
    if passes.of_others is not None:
        total += _of_pass(passes.of_others, sizes.swapped)
    if passes.of_others is not None and passes.flags:
        # counted as numbers of 4 bytes, and read as bytes
        total += Needed(-3 * sizes.edges * prod(passes.of_others.loads[-1].shape), 0, 0)
    return total


def _by_winners(by: Winners, program: Program, sizes: EdgeCounts) -> Needed:
    """Return what gradients by winners need: a row that several columns of a row read is moved once."""
    (of_rows, entries), *others = by.over(program.shapes[program.results[0].args[0]][1], sizes)
    moving = _of_pass(of_rows, replace(entries, edges=min(entries.edges, sizes.edges)))
    total = replace(_of_pass(of_rows, entries), bytes=moving.bytes)
    return sum((_of_pass(*each) for each in others), total)


def _of_pass(program: Program, sizes: EdgeCounts) -> Needed:
    work = program_cost(program, sizes, torch.float32)
    dots = (step for step in program.steps if step.op in ("dot", "dot_t"))
    products = sum(step_operations(program, step) for step in dots)
    for result in program.results:
        if result.kind == "weight":
            (heads, a), (_, b) = (program.shapes[each] for each in result.args)
            products += 2 * heads * a * b
    return Needed(work.read + work.written, sizes.edges * products, work.operations - sizes.edges * products)
