"""Messages as programs, part by part: what is fetched for them, and whether backward fetches it again.

Two things can travel: what the program loads of sources, made by their owner, or the narrowest values that
these are made of, from which each part makes the loads. The gradients of the program say whether backward
reads sources at all: a sum of rows times numbers that are not learned does not, as a softmax does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft.compiler.execute import shaped
from weft.compiler.programs.run import extra_tensors, run
from weft.compiler.ranks.pieces import InPieces, piece_gradients, pieces
from weft.graph.message.block import Block, PairTransform
from weft.graph.message.compiled import (
    REDUCTIONS,
    compiled_of,
    compiles,
    program_edges,
    transposed_edges,
)
from weft.graph.message.reduction import Propagation
from weft.graph.reductions import Contribution, Running, reduction
from weft.strategies.sequential.parts import Part
from weft.strategies.sequential.run import Ending, Extra, Rows, Totals


@dataclass(frozen=True)
class Planned:
    """A call of `propagate` as a program in pieces."""

    how: Propagation
    pieces: InPieces
    inputs: Sequence[Tensor]

    @property
    def learned(self) -> tuple[bool, ...]:
        """Which loads have a gradient, in this step."""
        count = len(self.pieces.loads)
        return self.pieces.wanted(self.inputs) if torch.is_grad_enabled() else (False,) * count

    @property
    def bytes_of_loads(self) -> int:
        """The bytes that cross a row where the program's loads travel: forward, back, and again forward."""
        program, wanted = self.pieces.program, self.learned
        once = sum(
            load.shape[0] * load.shape[1] * self.pieces.made.dtype.itemsize
            for load in program.loads
            if load.source == "other"
        )
        back = any(want for want, load in zip(wanted, program.loads) if load.source == "other")
        return once * (1 + back + piece_gradients(program, wanted).reads_sources)

    @property
    def bytes_of_rows(self) -> int:
        """The bytes that cross a row where the given rows travel, and are fetched again for backward."""
        given = {id(each): each for each in self.how.src}.values()
        once = [each.shape[1:].numel() * each.element_size() for each in given]
        backs = [each.requires_grad and torch.is_grad_enabled() for each in given]
        again = any(self.learned)
        return sum(size * (1 + back + again) for size, back in zip(once, backs))

    def sent(self, num_rows: int) -> list[Tensor]:
        """Return the program's loads of sources, of own rows."""
        made: list[Tensor] = self.pieces.source(num_rows, 0, 0, *self.inputs, *self._counts(None))
        return made

    def transform(self) -> tuple[PairTransform, list[Tensor]]:
        """Return what makes the loads of the rows of a part, and its parameters."""
        first, last = len(self.how.src), len(self.how.per_edge)
        shared = list(self.inputs[last:])

        def make(block: Block, *given: Any) -> Any:
            rows, params = given[:first], given[first:]
            others = [None] * (last - first)
            made = self.pieces.source(len(rows[0]), 0, 0, *rows, *others, *params, *self._counts(None))
            return tuple(made)

        return make, shared

    @property
    def weighted(self) -> bool | None:
        """Whether this is a sum of rows, each times a number of its edge that is not learned.

        False: of rows as they are; None: it is no such sum.
        """
        program = self.pieces.program
        (result,) = program.results
        first, (value, *_) = len(program.loads), result.args
        if result.kind != "sum":
            return None
        if value < first:
            return False if program.loads[value].source == "other" else None
        step = program.steps[value - first]
        if step.op != "mul" or max(step.args) >= first:
            return None
        kinds = {program.loads[each].source: each for each in step.args}
        if set(kinds) != {"other", "edge"} or len(program.loads) != 2:
            return None
        plain = program.loads[kinds["edge"]].shape == (1, 1) and not self.learned[kinds["edge"]]
        return True if plain else None

    def loads(self, block: Block) -> list[Tensor]:
        """Return the program's loads that are not of sources."""
        made: list[Tensor] = self.pieces.others(*self._sizes(block), *self.inputs, *self._counts(block))
        return made

    def finished(self, block: Block, out: Tensor) -> Tensor:
        """Return the reduced messages from what the program gave."""
        made = self.pieces.made
        rows = shaped(self.pieces.reduction, out, block.num_dst)
        if made.after is None:
            return rows
        sizes = self._sizes(block)
        beside = self.pieces.behind(*sizes, *self.inputs, *self._counts(block))
        (whole,) = made.after(*sizes, rows, *beside)
        return whole.to(made.dtype)  # type: ignore[no-any-return]

    def _sizes(self, block: Block) -> tuple[int, int, int]:
        return 0, block.num_dst, block.num_edges

    def _counts(self, block: Block | None) -> list[Any]:
        kind = self.pieces.made.counts
        if kind is None:
            return []
        if block is None:
            return [None]
        return [(block.indptr.diff() if block.whole_rows else block.in_degree("dst")).to(kind)]


def planned(how: Propagation) -> Planned | None:
    """Return a call as a program in pieces; None: it has none."""
    if not compiles() or how.kernel_reduce not in REDUCTIONS:
        return None
    for without in ((), ("behind",)):  # which may make several reductions of one
        found = compiled_of(how, without=without)
        if isinstance(found, str):
            return None
        made, captured = found
        cut = _pieces(made)
        if cut is not None:
            return Planned(how, cut, made.inputs([*how.per_edge, *how.params], captured))
    return None


def _pieces(made: Any) -> InPieces | None:
    """Return the pieces of a compiled message, made once."""
    if "_pieces" not in vars(made):
        vars(made)["_pieces"] = pieces(made)
    return vars(made)["_pieces"]  # type: ignore[no-any-return]


class ProgramInParts(Ending):
    """A program over the edges of one part after the other.

    The rows are what it loads of sources; beside them it takes its other loads, in order.
    """

    def __init__(self, plan: Planned, num_dst: int) -> None:
        self.program, wanted = plan.pieces.program, plan.learned
        self.kind = reduction(self.program.results[0].kind)
        super().__init__(Running(self.kind, num_dst))
        self.gradient = piece_gradients(self.program, wanted)
        self.needs_rows = self.gradient.reads_sources

    def add(self, part: Part, edges: Block, rows: Rows, extra: Extra) -> None:
        """Take what the edges of a part are reduced to."""
        out, *rest = run(self.program, program_edges(edges), self._loads(part, rows, extra))
        self.dtype = out.dtype
        beside = rest[0] if rest else None
        if beside is not None and beside.is_floating_point():
            beside = beside.squeeze(2).double()  # as `Running` keeps masses
        self.running.add(Contribution(out, beside), part.places)

    def result(self) -> Tensor:
        """Return the reduced rows: a copy where backward needs them as they are."""
        return self.running.whole.value.to(self.dtype, copy=self.kind.looks_back)

    def gradients(
        self, part: Part, edges: Block, rows: Rows, extra: Extra, grad: Tensor, totals: Totals
    ) -> list[Tensor]:
        above = part.of_rows(grad).contiguous()
        given = [*self._loads(part, rows, extra), *self._extra(part, above)]
        found = self.gradient.run(program_edges(edges), transposed_edges(edges), given)
        others = [place for place, load in enumerate(self.program.loads) if load.source != "other"]
        of_rows: dict[int, Tensor] = {}
        for place, gradient in found:
            source = self.program.loads[place].source
            if source == "other":
                of_rows[place] = gradient
                continue
            total = totals.of[others.index(place)]
            if total is None:
                continue
            if source == "row":
                part.add_rows(total, gradient.to(total.dtype))
            elif source == "edge":
                part.set_edges(total, gradient.to(total.dtype))
            else:
                total.add_(gradient)
        return [
            of_rows[place] if place in of_rows else grad.new_zeros(edges.num_src, *load.shape)
            for place, load in enumerate(self.program.loads)
            if load.source == "other"
        ]

    def _extra(self, part: Part, grad: Tensor) -> list[Tensor]:
        """Return what gradient programs read beside the loads, from what all parts were reduced to."""
        kind = self.program.results[0].kind
        if not self.kind.looks_back:
            return extra_tensors(kind, grad, [], grad, None)
        value, beside = self.running.at(part.places)
        assert beside is not None
        rest = beside if kind != "softmax" else beside.to(value.dtype).unsqueeze(2)
        return extra_tensors(kind, value, [rest], grad, None)

    def _loads(self, part: Part, rows: Rows, extra: Extra) -> list[Any]:
        """Return the program's tensors at a part; None for sources where their rows are not here."""
        sources, others = iter(rows), iter(extra)
        found: list[Any] = []
        for load in self.program.loads:
            if load.source == "other":
                found.append(next(sources, None))
                continue
            tensor = next(others)
            assert tensor is not None
            if load.source == "row":
                tensor = part.of_rows(tensor)
            found.append(part.of_edges(tensor) if load.source == "edge" else tensor)
        return found
