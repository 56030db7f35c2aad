"""The whole graph in every step, its matrix in blocks on a grid of ranks (Tripathy et al., CAGNET, 2020).

Rank (i, j) of r x c holds A[i, j] and n/P rows of full width. A stays where it is. An aggregate gathers rows
in the column, (r − 1) · n/P · F words received, multiplies, and adds up in the row, (c − 1) · n/P · F words;
backward is the adjoint, gather and sum exchanged. That is CAGNET's 1.5-D, of replication c, also where r = c;
r x 1 is 1-D with all rows gathered at once. 1-D in stages and 2-D (SUMMA) are the strategy `staged`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Unpack

from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.config import Range
from weft.errors import RecipeError
from weft.exchanges.base import check_exchange, exchanges, make_exchange
from weft.exchanges.exact import Exact
from weft.graph.message.block import Block
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.cells import check_cell, grid_groups
from weft.strategies.layout import PartsLayout
from weft.strategies.local import LocalGraph
from weft.strategies.merged.grid_block import GridBlock
from weft.strategies.merged.merge import Merge
from weft.strategies.reducer import Summed
from weft.strategies.shared import Shared

Count = Annotated[int, Range(least=1)]


@strategies.add("grid")
class Grid(Strategy):
    """Train on the whole graph across workers that stand on a grid of `rows` x `columns` (1.5-D).

    One of the two may be left out; without both the grid has one column (1-D). `columns` is the replication c
    of CAGNET's 1.5-D; features are not cut by columns (`staged` does that). `partitioner` decides on the rows
    of each worker; `exchange` may be something else than exact where there is one column.
    """

    name: ClassVar[str] = "grid"
    on_workers: ClassVar[bool] = True
    takes_whole: ClassVar[bool] = False
    cuts: ClassVar[str] = "grid"
    partitioner: ClassVar[str] = "hash"
    exchanges: ClassVar[tuple[str, ...]] = ("exact", "skip", "quantised")
    layout: "GridParts"

    def __init__(
        self,
        graph: LocalGraph,
        *,
        partitioner: str | Mapping[str, Any] = "hash",
        parts: Count | None = None,
        rows: Count | None = None,
        columns: Count | None = None,
        exchange: str | Mapping[str, Any] = "exact",
        **context: Unpack[RunContext],
    ) -> None:
        super().__init__(graph, **context)
        shape = self.shape({"rows": rows, "columns": columns, "exchange": exchange}, self.group.size)
        layout = GridParts(self.shared, graph, shape, exchange=exchange)
        self.compose(layout, reducer=Summed(self.group))

    @classmethod
    def shape(cls, options: Mapping[str, Any], workers: int) -> tuple[int, int]:
        """Return rows and columns for so many workers, or name those that are possible."""
        rows, columns = options.get("rows"), options.get("columns")
        if rows is None:
            rows = workers if columns is None else workers // columns
        columns = workers // rows if columns is None else columns
        if rows * columns != workers:
            possible = ", ".join(f"{each['rows']} x {each['columns']}" for each in cls.layouts(workers))
            asked = " and ".join(
                f"strategy.{name} = {options[name]}" for name in ("rows", "columns") if options.get(name)
            )
            raise RecipeError(f"{asked}: no grid of {workers} workers; possible (rows x columns): {possible}")
        name, _ = check_exchange(options.get("exchange", "exact"))
        if columns > 1 and exchanges[name].exact_at != {}:
            raise RecipeError(
                f"strategy.exchange: a grid of {rows} x {columns} is exact; {name!r} needs one column, "
                f"strategy.rows = {workers}"
            )
        return rows, columns

    @classmethod
    def layouts(cls, workers: int) -> list[dict[str, Any]]:
        """Return the options of every grid of so many workers, that of one column first."""
        rows = [count for count in range(workers, 0, -1) if workers % count == 0]
        return [{"rows": count, "columns": workers // count} for count in rows]


class GridParts(PartsLayout):
    """A cell of the matrix, and the rows of its column of workers, which are gathered."""

    def __init__(
        self,
        shared: Shared,
        graph: LocalGraph,
        shape: tuple[int, int],
        *,
        exchange: str | Mapping[str, Any],
    ) -> None:
        super().__init__(shared, graph)
        shard, group, clock = graph.shard, shared.group, shared.clock
        check_cell(shard, shape, group.rank)
        column, row = grid_groups(group, shape)
        gather, merged = (HaloPlan.everything(shard.node_ids, ids) for ids in (column, row))
        self.exchange = make_exchange(exchange, gather, column, clock)
        self._exact = Exact(gather, column, clock)
        self.exchange.kind, self._exact.kind = "gather", "evaluate"
        self._merge, self._exact_merge = (self._merging(merged, row, kind) for kind in ("reduce", "evaluate"))
        self.block = GridBlock(shard, self._exact, merged, self._exact_merge, group=group, clock=clock)
        self.mark_constant(self.block)

    def training_block(self) -> Block:
        """Return the block, with the exchange of the step."""
        self.exchange.begin_step()
        self._merge.begin_step()
        self.block.exchange, self.block.merge = self.exchange, self._merge
        return self.block

    def exact_block(self) -> Block:
        """Return the block, every row gathered exactly."""
        self._exact.begin_step()
        self._exact_merge.begin_step()
        self.block.forget()
        self.block.exchange, self.block.merge = self._exact, self._exact_merge
        return self.block

    def end_step(self) -> None:
        """Let go of the rows of the step."""
        self.block.forget()
        self.exchange.end_step()
        self._merge.end_step()

    def state(self) -> dict[str, Tensor]:
        """Return the exchange's, with nothing left under way."""
        self.exchange.drain()
        return self.exchange.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Give it back to the exchange."""
        self.exchange.load_state(state)

    def _merging(self, plan: HaloPlan, group: Group, kind: str) -> Merge:
        spread_rows, collect = (Exact(way, group, self.shared.clock) for way in (plan, plan.reversed()))
        spread_rows.kind = collect.kind = kind
        return Merge(plan, spread_rows, collect)
