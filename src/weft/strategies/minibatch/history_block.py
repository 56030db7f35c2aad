"""The block of a batch with histories: drawn neighbours are computed, all others are remembered."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.errors import InputError
from weft.exchanges.base import Exchange
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.graph.message.reduction import Aggregation
from weft.graph.parts.shard import Shard
from weft.samplers.core.block import SampledBlock
from weft.samplers.workers.row_requests import RowRequests
from weft.strategies.halo.block import HaloBlock

_HISTORY = Label("history")


class History:
    """What nodes had as input of each layer but the first, when they were last computed: one row per node."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.rows: dict[str, Tensor] = {}

    def of(self, layer: int, call: int, like: Tensor) -> Tensor:
        """Return the rows [n, ...] for one sum of a layer; zeros where nothing is known yet."""
        name = f"{layer}.{call}"
        if name not in self.rows:
            self.rows[name] = like.new_zeros(self.num_rows, *like.shape[1:])
        return self.rows[name]

    def keep(self, layer: int, call: int, places: Tensor | slice, rows: Tensor) -> None:
        """Remember rows that were computed."""
        self.of(layer, call, rows)[places] = rows.detach()


class Remembered(Protocol):
    """The histories of the rows of a batch."""

    def read(self, layer: int, call: int, like: Tensor) -> Tensor:
        """Return a row for each source row of the batch."""

    def write(self, layer: int, call: int, rows: Tensor) -> None:
        """Remember what was computed for the first rows of the batch, those that the layer was given."""


class Here:
    """Histories of all nodes, in one process."""

    def __init__(self, history: History, nodes: Tensor) -> None:
        self.history, self.nodes = history, nodes

    def read(self, layer: int, call: int, like: Tensor) -> Tensor:
        return self.history.of(layer, call, like)[self.nodes]

    def write(self, layer: int, call: int, rows: Tensor) -> None:
        self.history.keep(layer, call, self.nodes[: len(rows)], rows)


class AtOwners:
    """Histories that lie with the owners of nodes. All workers read and write together.

    A node that several workers computed in a step has the same row from each; that of the last one stays.
    """

    def __init__(
        self, history: History, requests: RowRequests, node_ids: Tensor, group: Group, hops: int
    ) -> None:
        self.history, self.hops = history, hops
        # A layer was given the rows found until its hop: hop by hop they were asked for.
        self.asked = [requests.first(hops + 1 - layer, group) for layer in range(hops)]
        self.places = [torch.searchsorted(node_ids, ids) for ids in requests.ids]

    def read(self, layer: int, call: int, like: Tensor) -> Tensor:
        own = self.history.of(layer, call, like)
        return self.asked[0].fixed(own[torch.cat(self.places)], label=_HISTORY)

    def write(self, layer: int, call: int, rows: Tensor) -> None:
        for places, part in zip(self.places, self.asked[layer].give(rows, label=_HISTORY)):
            self.history.keep(layer, call, places[: len(part)], part)


class Recording(Block):
    """A block for one layer that remembers what is summed over neighbours, exactly."""

    layer: int
    history: History
    calls: int = 0

    def prefers_aggregate_first(self, h: Any) -> bool:
        """Return True, as blocks with histories do: these are of what a layer is given."""
        return True

    def _aggregate(self, h: Any, how: Aggregation) -> Any:
        """Remember the rows and return what `Block.aggregate` does."""
        self.history.keep(self.layer, self.calls, slice(None), h)
        self.calls += 1
        return super()._aggregate(h, how)


class Recorder(Recording):
    """The whole graph."""

    def __init__(self, graph: Graph, layer: int, history: History) -> None:
        super().__init__(
            graph.indptr,
            graph.indices,
            num_src=graph.num_nodes,
            edge_data=graph.edge_data,
            degrees=graph,
            transposed=lambda: graph.transposed,
        )
        self.layer, self.history = layer, history


class HaloRecorder(Recording, HaloBlock):
    """A worker's own rows of it."""

    def __init__(self, shard: Shard, exchange: Exchange, group: Group, layer: int, history: History) -> None:
        super().__init__(shard, exchange, group)
        self.layer, self.history = layer, history


class HistoryBlock(Block):
    """All edges into the rows of one hop. The caller holds the first `num_held` source rows, as drawn.

    A sum is Σ a g over all plus R Σ a (h − g) over drawn, with g the history and R = degree / drawn: right in
    the mean for any g, and without variance where g = h. With `safe`, a first pass without dropout gives such
    sums of μ, and the second adds √R Σ a (h − μ) over drawn to them.
    """

    takes_messages = False

    def __init__(self, every: Block, drawn: SampledBlock, layer: int, history: Remembered) -> None:
        stop = int(every.indptr[drawn.num_dst])
        super().__init__(
            every.indptr[: drawn.num_dst + 1],
            every.indices[:stop],
            num_src=every.num_src,
            src_ids=every.src_ids,
            edge_ids=every.edge_ids[:stop],
            edge_data=every.edge_data,
            degrees=every.degree_source,
        )
        self.drawn, self.layer, self.history = drawn, layer, history
        self.num_held = drawn.num_src
        # Ids of edges rise by one in a row: so the place of each drawn edge among all.
        first = self.indptr[:-1][drawn.edge_dst]
        self._place = first + drawn.edge_ids - self.edge_ids[first]
        self.safe = False
        self.calls = 0
        self.given: list[Tensor] = []
        self.means: list[tuple[Tensor, Tensor]] = []

    def begin(self, *, safe: bool) -> None:
        """Begin a pass: `safe` the second one, that adds to what the first gave."""
        self.safe, self.calls = safe, 0
        if not safe:
            self.given, self.means = [], []

    def keep(self) -> None:
        """Remember what the first pass computed."""
        for call, rows in enumerate(self.given):
            self.history.write(self.layer, call, rows)

    def prefers_aggregate_first(self, h: Any) -> bool:
        """Return True: histories are of what a layer is given, before its transform."""
        return True

    def _aggregate(self, h: Any, how: Aggregation) -> Any:
        """Return the estimate of the sum or the mean over all neighbours."""
        if not how.adds:
            self._refuse(f"the {how.reduce} of neighbours")
        call, self.calls = self.calls, self.calls + 1
        scales = (how.weight, how.src_scale, self.scale_of_rows(how, h.dtype))
        if self.safe:
            mean_rows, mean_sums = self.means[call]
            return mean_sums + self._drawn_sum(h - mean_rows, *scales, root=True)
        remembered = self.history.read(self.layer, call, h)
        whole: Any = self.reduce_rows(remembered, "sum", *scales)
        total: Tensor = whole + self._drawn_sum(h - remembered[: self.num_held], *scales, root=False)
        self.given.append(h.detach())
        self.means.append((h, total))
        return total

    def _drawn_sum(
        self,
        h: Tensor,
        weight: Tensor | None,
        src_scale: Tensor | None,
        dst_scale: Tensor | None,
        *,
        root: bool,
    ) -> Tensor:
        ratio = self.drawn.row_scale
        assert ratio is not None, "uniform draws are scaled by rows"
        ratio = (ratio.sqrt() if root else ratio).to(
            torch.float64 if h.dtype == torch.float64 else torch.float32
        )
        summed: Any = self.drawn.reduce_rows(
            h,
            "sum",
            None if weight is None else weight[self._place],
            None if src_scale is None else src_scale[: self.num_held],
            ratio if dst_scale is None else ratio * dst_scale,
        )
        total: Tensor = summed
        return total

    # What is no sum of neighbours

    def src(self, h: Any) -> Any:
        """Refuse to give rows that were not computed."""
        return self._refuse("the rows of neighbours") if h.shape[0] != self.num_src else h

    def attend(self, *args: Any, **options: Any) -> Tensor:
        """Refuse."""
        self._refuse("attention")

    def propagate(self, *args: Any, **options: Any) -> Tensor:
        """Refuse."""
        self._refuse("a function of edges")

    def by_relation(self) -> Any:
        """Refuse."""
        self._refuse("relations")

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(
            f"strategy 'control_variate' estimates sums and means over neighbours, the model needs {what}; "
            "use 'sampled', or layers such as gcn, sage or gin"
        )


def history_blocks(blocks: Sequence[Block], every: Block, history: Remembered) -> list[HistoryBlock]:
    """Return the blocks of the layers above the first, with histories; `every` has all edges into them."""
    above: list[HistoryBlock] = []
    for layer, drawn in enumerate(blocks[1:], start=1):
        assert isinstance(drawn, SampledBlock)
        above.append(HistoryBlock(every, drawn, layer, history))
    return above


def named(history: History) -> dict[str, Tensor]:
    """Return the rows under names for a checkpoint."""
    return {f"history.{name}": rows for name, rows in history.rows.items()}


def restore(history: History, state: Mapping[str, Tensor]) -> None:
    """Take back what `named` gave."""
    for name, rows in state.items():
        if name.startswith("history."):
            history.rows[name.removeprefix("history.")] = rows.clone()
