"""One process, the whole graph in every step. Exact: what every other strategy is compared with."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn

from weft.errors import RecipeError
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.layers.base import Layer
from weft.sizes import parse_bytes, shown
from weft.stores.cached import free_bytes
from weft.strategies.base import Given, Metrics, Scores, Strategy, evaluating, joined, strategies
from weft.strategies.offload.offload import Offload, checked, needed_bytes
from weft.strategies.tally import Tally
from weft.tasks.base import Targets


@strategies.add("single")
class Single(Strategy):
    """Train on the whole graph in one process.

    With `activation = "offload"` the graph and the rows between layers stay in the host's memory, and the
    device is given chunks of them: it takes at most `memory`, bytes or words as "8GiB"; by default what is
    free there.
    """

    name: ClassVar[str] = "single"
    over: ClassVar[tuple[str, ...]] = ("nodes", "pairs")
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    offload: Offload | None = None

    def __init__(
        self,
        graph: Graph,
        *,
        device: torch.device | None = None,
        activation: Literal["keep", "offload"] = "keep",
        memory: int | str | None = None,
        **given: Unpack[Given],
    ) -> None:
        super().__init__(graph, **given)
        if memory is not None and activation != "offload":
            raise RecipeError("strategy.memory: bounds activation = 'offload'; name that, or leave it out")
        if activation == "offload":
            self._device = torch.device("cpu") if device is None else device
            room = (
                int(0.9 * free_bytes(self._device))
                if memory is None
                else parse_bytes(memory, "strategy.memory")
            )
            self.offload = Offload(graph, self._device, memory=room, clock=self.clock, autocast=self.autocast)

    @classmethod
    def graph_on_device(cls, options: Mapping[str, Any]) -> bool:
        """Return whether the graph is to lie where the model is: not where chunks of it come and go."""
        return options.get("activation") != "offload"

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model that cannot be offloaded, or not in the memory given."""
        if self.offload is None:
            return
        least = needed_bytes(self.offload, checked(model), self.offload.device)
        if self.offload.memory < least:
            raise RecipeError(
                f"strategy.memory: training in chunks takes at least {shown(least)}, "
                f"got {shown(self.offload.memory)}; give more, or a narrower model"
            )

    def step_loss(self, model: nn.Module, batch: Any, step: int) -> tuple[Tensor, int]:
        """Return the mean loss of all training targets."""
        targets = self.targets["train"]
        outputs = targets.outputs(model, self._forward(model), own_rows, int(self.clock[1]))
        return self.task.loss.summed(outputs, targets.y) / targets.count, targets.count

    @torch.no_grad()
    def evaluate(self, model: nn.Module, metrics: Metrics) -> Scores:
        """Return the metrics and the loss of each split, from one forward pass."""
        with self.events.phase("evaluate"), evaluating(model):
            h = self._forward(model)
            found = {split: self._score(model, h, held, metrics) for split, held in self.scored.items()}
            return joined(found, self.task.scores_of_rows(model, h, lambda value: value))

    @torch.no_grad()
    def predict(self, model: nn.Module) -> Tensor:
        """Return the outputs for every node of the target type, with dropout off."""
        with evaluating(model):
            return self.task.rows_out(model, self._forward(model)[self.graph.target_rows])

    def _forward(self, model: nn.Module) -> Tensor:
        if self.offload is not None:
            outputs = self.offload(model)
            return outputs if self.loss_scale is None else self.loss_scale.up(outputs)
        block = self.graph.block(self.clock)
        blocks, device = SameBlock(block, hops_of(model)), self.graph.indptr.device.type
        try:
            outputs = self._outputs(model, blocks, self.graph.x, device=device, num_rows=block.num_dst)
        finally:
            block.clock = None  # the block is the graph's, and the graph outlives this run
        return outputs

    def _score(self, model: nn.Module, h: Tensor, targets: Targets, metrics: Metrics) -> dict[str, float]:
        counted = Tally(metrics, self.task.loss)
        for outputs, y in targets.pieces(model, h, own_rows):
            counted.add(outputs, y)
        return counted.scores(lambda value: value, lambda rows: rows, targets.count)


def own_rows(h: Tensor, ids: Tensor) -> Tensor:
    """Return the rows of nodes that are all here."""
    return h[ids]


class SameBlock(Sequence[Block]):
    """The block of a whole graph as the list of blocks a model is called with: every hop sees all of it."""

    def __init__(self, block: Block, hops: int) -> None:
        self.block = block
        self.hops = hops

    def __len__(self) -> int:
        return self.hops

    def __getitem__(self, index: Any) -> Any:
        return [self.block] * len(range(self.hops)[index]) if isinstance(index, slice) else self.block

    def __iter__(self) -> Iterator[Block]:
        return iter([self.block] * self.hops)


def hops_of(model: nn.Module) -> int:
    """Return how many blocks a model takes; for one that does not say, as many as it could have layers."""
    known = known_hops(model)
    return len(list(model.modules())) if known is None else known


def known_hops(model: nn.Module) -> int | None:
    """Return how many blocks a model takes; None where neither it nor its layers say."""
    told = getattr(model, "hops", None)
    layers = [module.hops for module in model.modules() if isinstance(module, Layer)]
    return int(told) if told is not None else sum(layers) or None
