"""A compiled message over sources that come a piece at a time: what reads them apart from all else.

What of destinations, edges and parameters a program loads is made once; its loads of sources are made of the
rows of a piece. Backward over a piece needs those rows again only where a gradient program reads them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from torch import Tensor, fx

from weft.compiler.annotate import learned
from weft.compiler.compile import Compiled, Reduction, inputs_of
from weft.compiler.lower import Loaded
from weft.compiler.programs.gradient import Gradients, gradients
from weft.compiler.programs.program import Edges, Program, trimmed
from weft.compiler.programs.run import run
from weft.compiler.stages import Stage, stage


@dataclass(frozen=True)
class InPieces:
    """A message of one reduction that has a program."""

    made: Compiled
    program: Program
    source: Stage
    """Of all inputs, those of sources being the rows of a piece: what the program loads of sources."""
    others: Stage
    """Of all inputs: the program's other loads, in order."""
    behind: Stage
    """Of all inputs: what runs after reads beside the result."""
    loads: tuple[fx.Node, ...]

    @property
    def reduction(self) -> Reduction:
        """The only one."""
        return self.made.reductions[0]

    def wanted(self, inputs: Sequence[Tensor]) -> tuple[bool, ...]:
        """Return which loads have a gradient."""
        needs = dict(zip(inputs_of(self.made.graph), (each.requires_grad for each in inputs)))
        found = learned(self.made.graph, needs)
        return tuple(each in found for each in self.loads)


def pieces(made: Compiled) -> InPieces | None:
    """Return a message in pieces; None where it has several reductions, no program, or pairs for sources."""
    if len(made.reductions) > 1 or made.reductions[0].program is None or made.by_relation is not None:
        return None
    (reduction,) = made.reductions
    loaded = [made.values[place] for place in reduction.loads]
    loads = tuple(each.node if isinstance(each, Loaded) else each for each in loaded)
    program, inputs = reduction.program, inputs_of(made.graph)
    assert program is not None
    of_sources = [load.source == "other" for load in program.loads]
    return InPieces(
        made,
        program,
        stage(inputs, [each for each, other in zip(loaded, of_sources) if other]),
        stage(inputs, [each for each, other in zip(loaded, of_sources) if not other]),
        stage(inputs, [made.values[place] for place in made.after_inputs]),
        loads,
    )


@dataclass(frozen=True)
class PieceGradients:
    """Gradient programs without the loads that they do not read."""

    passes: Gradients
    of_rows: tuple[Program, tuple[int, ...]] | None
    of_others: tuple[Program, tuple[int, ...]] | None
    reads_sources: bool
    """Whether any of them reads rows of sources."""

    def run(
        self, edges: Edges, transposed: Edges, given: Sequence[Tensor | None]
    ) -> list[tuple[int, Tensor]]:
        """Return gradients with the places of their loads; `given` may lack what no program reads."""
        found: list[tuple[int, Tensor]] = []
        sides = (
            (self.of_rows, self.passes.row_places, edges),
            (self.of_others, self.passes.other_places, transposed),
        )
        for made, places, over in sides:
            if made is not None:
                program, kept = made
                tensors = [each for each in (given[place] for place in kept) if each is not None]
                found += zip(places, run(program, over, tensors))
        return found


@lru_cache(maxsize=1024)
def piece_gradients(program: Program, wanted: tuple[bool, ...]) -> PieceGradients:
    """Return the gradient programs of the wanted loads."""
    passes = gradients(program, wanted)
    of_rows, of_others = (
        None if each is None else trimmed(each) for each in (passes.of_rows, passes.of_others)
    )
    sources = {place for place, load in enumerate(program.loads) if load.source == "other"}
    reads = any(sources & set(each[1]) for each in (of_rows, of_others) if each is not None)
    return PieceGradients(passes, of_rows, of_others, reads)
