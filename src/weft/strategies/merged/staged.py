"""The whole graph in every step, multiplied stage by stage (Tripathy et al., CAGNET, 2020).

    1-D   rank i has rows A[i, ·] and H[i]; stage s broadcasts H[s]
    2-D   rank (i, j) of √P x √P has A[i, j]; stage s broadcasts A[i, s] in rows, H[s, k] in columns (SUMMA)

A rank has n/P rows, its block of A, and in a stage one block of others: O(n F / P + nnz / P) memory, where a
gather, as in `grid`, has r n F / P. For one aggregate of rows of F columns a rank receives, forward and again
backward,

    1-D   (P − 1) · n/P · F numbers
    2-D   (√P − 1) · n/P · F numbers, (√P − 1) (nnz/P + n/√P) integers of A, weights of edges as numbers where
          there are any; and 2 (√P − 1)/√P · n/P · F numbers, to turn rows into columns and back

Differs from CAGNET: rows are whole between aggregates, so W is applied without a second SUMMA; A is directed.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Unpack

from weft.config import Range
from weft.errors import RecipeError
from weft.graph.message.block import Block
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.cells import check_cell, grid_groups
from weft.strategies.layout import PartsLayout
from weft.strategies.local import LocalGraph
from weft.strategies.merged.staged_block import StagedBlock
from weft.strategies.reducer import Summed
from weft.strategies.shared import Shared
from weft.strategies.strategy_cost import StrategyCost, costs

Form = Literal["1d", "2d"]


@strategies.add("staged")
class Staged(Strategy):
    """Train on the whole graph, other ranks' rows coming and going block by block: the least memory (CAGNET).

    `form` 1d: each worker has its rows of the matrix, and rows of features come from one worker after the
    other. 2d: SUMMA on a square grid of workers, blocks of the matrix and columns of features come along rows
    and columns of it. For layers that sum or average neighbours: gcn, sage (mean), gin, sgc, appnp.
    `partitioner` decides on the rows of each worker.
    """

    name: ClassVar[str] = "staged"
    on_workers: ClassVar[bool] = True
    takes_whole: ClassVar[bool] = False
    cuts: ClassVar[str] = "grid"
    partitioner: ClassVar[str] = "hash"
    layout: "StagedParts"

    def __init__(
        self,
        graph: LocalGraph,
        *,
        partitioner: str | Mapping[str, Any] = "hash",
        parts: Annotated[int, Range(least=1)] | None = None,
        form: Form = "1d",
        **context: Unpack[RunContext],
    ) -> None:
        super().__init__(graph, **context)
        shape = self.shape({"form": form}, self.group.size)
        self.compose(StagedParts(self.shared, graph, shape), reducer=Summed(self.group))

    @classmethod
    def shape(cls, options: Mapping[str, Any], workers: int) -> tuple[int, int]:
        """Return rows and columns of the grid, or say how many workers can stand on one."""
        if options.get("form", "1d") == "1d":
            return workers, 1
        side = math.isqrt(workers)
        if side * side != workers:
            raise RecipeError(
                f"strategy.form: '2d' needs a square number of workers (1, 4, 9, 16, ...), there are "
                f"{workers}; use '1d', or strategy.name = 'grid'"
            )
        return side, side

    @classmethod
    def layouts(cls, workers: int) -> list[dict[str, Any]]:
        """Return both forms, 2-D where the number is a square."""
        square = math.isqrt(workers) ** 2 == workers
        return [{"form": form} for form in ("1d", "2d") if form == "1d" or square]


class StagedParts(PartsLayout):
    """A block of the matrix and its rows; those of others are broadcast, stage by stage."""

    def __init__(self, shared: Shared, graph: LocalGraph, shape: tuple[int, int]) -> None:
        super().__init__(shared, graph)
        check_cell(graph.shard, shape, shared.group.rank)
        self.block = StagedBlock(graph.shard, *grid_groups(shared.group, shape), clock=shared.clock)
        self.mark_constant(self.block)

    def training_block(self) -> Block:
        """Return the block."""
        self.block.evaluating = False
        return self.block

    def exact_block(self) -> Block:
        """Return the block: it is exact, and keeps nothing of a step."""
        self.block.evaluating = True
        return self.block


@costs.add("staged")
class StagedCost(StrategyCost):
    """Least memory of all exact ways on workers."""

    turns: ClassVar[bool] = True
