"""Who holds what of a graph, and the blocks by which a model reads it."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from weft.comm.rows import GatheredRows
from weft.graph.message.block import Block
from weft.graph.views import GraphView
from weft.strategies.call import SameBlock, hops_of
from weft.strategies.local import LocalGraph
from weft.strategies.placement import Nearby
from weft.strategies.shared import Shared


class Layout:
    """What a strategy asks of the graph it holds. A subclass gives the blocks, and rows of other workers."""

    graph: GraphView

    def __init__(self, shared: Shared) -> None:
        self.shared = shared

    @property
    def nearby(self) -> Nearby | None:
        """The graph as a GPU reads batches of it; None where the model and the batches lie with the graph."""
        return None

    @property
    def lends_rows(self) -> bool:
        """Whether a model's learned rows may be read, and take gradients, row by row."""
        return True

    # A step on the graph

    def training_block(self) -> Block:
        """Return the block of this step; called once a step, on every worker."""
        raise NotImplementedError

    def exact_block(self) -> Block:
        """Return the block of an exact forward pass, which leaves no trace."""
        raise NotImplementedError

    def release(self, block: Block) -> None:
        """Note that a pass with a block is over: who made the block may outlive this run."""

    def training_rows(self, model: nn.Module) -> Tensor:
        """Return the model's rows of all own nodes, in a step of training."""
        return self._run(model, self.training_block())

    def exact_rows(self, model: nn.Module) -> Tensor:
        """Return the model's rows of all own nodes, exactly."""
        return self._run(model, self.exact_block())

    def loss_of(self, model: nn.Module, rows: Tensor) -> Tensor:
        """Return the own share of the mean loss of all training targets, of the model's rows."""
        shared, targets = self.shared, self.shared.targets["train"]
        outputs = targets.outputs(model, rows, self.rows_of, int(shared.clock[1]))
        return shared.task.loss.summed(outputs, targets.y) / targets.count

    def end_forward(self) -> None:
        """Note that the forward pass is done: what only it needed may go before gradients take memory."""

    def end_step(self) -> None:
        """Note that backward is done."""

    # Rows by id

    def own_ids(self) -> Tensor | None:
        """Return the global ids of the nodes that this process owns, ascending; None: all."""
        return None

    def global_ids(self, rows: Tensor) -> Tensor:
        """Return the ids of own rows in the whole graph."""
        raise NotImplementedError

    def rows_of(self, h: Tensor, ids: Tensor) -> Tensor:
        """Return the rows of any nodes by global id, from all workers' own rows; called by all of them."""
        raise NotImplementedError

    def gathered(self, rows: Tensor) -> Tensor:
        """Return the rows of every node of the target type, from all workers' own ones; called by all."""
        raise NotImplementedError

    # What is told, and kept

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model that cannot be trained like this."""

    def finish(self) -> None:
        """Leave what a run has learned outside of the model in its folder, at the end; called by all."""

    state_of_run: ClassVar[bool] = False
    """Whether `state` is the run's, the same on all workers; else that of this worker's halo or links."""

    def state(self) -> dict[str, Tensor]:
        """Return what this worker needs to continue."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""

    def exchange_errors(self) -> dict[int, float]:
        """Return the measured relative error of each exchanged tensor of the last epoch, where one was."""
        return {}

    def exchange_settings(self) -> dict[str, Any]:
        """Return what an exchange that chooses for itself chose for the next epoch."""
        return {}

    def _run(self, model: nn.Module, block: Block) -> Tensor:
        blocks, device = SameBlock(block, hops_of(model)), self.graph.indptr.device.type
        try:
            return self.shared.call(model, blocks, self.graph.x, device=device, num_rows=block.num_dst)
        finally:
            self.release(block)


class PartsLayout(Layout):
    """A worker's parts of a graph that a group of workers, perhaps of one, holds together."""

    graph: LocalGraph

    def __init__(self, shared: Shared, graph: LocalGraph) -> None:
        super().__init__(shared)
        self.graph = graph
        self._holders: GatheredRows | None = None

    def own_ids(self) -> Tensor | None:
        """Return the ids of the nodes that count here."""
        return self.graph.own_ids

    def mark_constant(self, *blocks: Any) -> None:
        """Have blocks bring the features once: they are the same in every step."""
        if len(self.graph.node_types) == 1 and self.graph.x is not None:
            for block in blocks:
                block.mark_constant(self.graph.x)

    def global_ids(self, rows: Tensor) -> Tensor:
        return self.graph.shard.node_ids[rows]

    def rows_of(self, h: Tensor, ids: Tensor) -> Tensor:
        """Return the rows of any nodes, which their owners send."""
        owned, own = self.graph.owned, self.graph.shard.node_ids
        # Not a cached property: its lock would be that of all workers of one process, which meet here.
        if self._holders is None:
            self._holders = GatheredRows(self.shared.group, own if owned is None else own[owned])
        return self._holders(h if owned is None else h[owned], ids)

    def gathered(self, rows: Tensor) -> Tensor:
        """Return the rows of every node of the target type, on every worker."""
        graph = self.graph
        kind = graph.node_types.index(graph.target_type)
        first, last = graph.node_offsets[kind : kind + 2]
        ids = graph.shard.node_ids[graph.target_rows] - first
        if graph.owned is not None:
            own = graph.owned[graph.target_rows]
            ids, rows = ids[own], rows[own]
        all_rows = rows.new_empty(last - first, rows.shape[1])
        all_rows[self.shared.everyones(ids)] = self.shared.everyones(rows)
        return all_rows
