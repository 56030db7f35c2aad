"""Steps on subgraphs that the sampler chooses: Cluster-GCN's clusters, GraphSAINT's random ones."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from weft.config import Range
from weft.errors import RecipeError
from weft.events import Events
from weft.graph.graph import Graph
from weft.samplers.base import Batch
from weft.samplers.cluster import ClusterSampler
from weft.samplers.loader import Loader
from weft.samplers.saint import SaintSampler
from weft.stores.open import open_store
from weft.strategies.base import LossName, each_loss, evaluating, strategies
from weft.strategies.placement import Nearby
from weft.strategies.single import SameBlock, Single, hops_of
from weft.strategies.steps import Steps


class Subgraphs(Steps, Single):
    """Every layer sees the subgraph of the step; the loss is that of its training nodes. One process.

    `store` is where features are read from, a name or a table with its options.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        loss: LossName = "auto",
        seed: int = 0,
        events: Events | None = None,
        autocast: torch.dtype | None = None,
        store: str | Mapping[str, Any] | None = None,
        device: torch.device | None = None,
    ) -> None:
        if store is not None:
            graph = graph.with_data(x=open_store(store, graph))
        super().__init__(graph, loss=loss, seed=seed, events=events, autocast=autocast)
        self._loader: Loader | None = None
        self._device = device
        self._nearby: Nearby | None = None

    def make_loader(self) -> Loader:
        """Return what prepares the subgraphs of an epoch."""
        raise NotImplementedError

    def begin_epoch(self, model: nn.Module) -> None:
        """Make the loader on first use."""
        if self._loader is None:
            self._loader = self.make_loader()
            self._loader.courier = None if self.nearby is None else self.nearby.courier

    @property
    def loader(self) -> Loader:
        """What prepares the batches."""
        assert self._loader is not None, "begin_epoch makes it"
        return self._loader

    @property
    def nearby(self) -> Nearby | None:
        """The graph as a GPU reads it; None where the model is on the CPU."""
        if self._nearby is None and self.device.type == "cuda":
            self._nearby = Nearby(self.graph, self.device)
        return self._nearby

    def predict(self, model: nn.Module) -> Tensor:
        """Return the outputs for every node of the target type, with dropout off."""
        if self.nearby is not None:
            with evaluating(model):
                return self.nearby.outputs(model, self.clock, self.autocast)[self.graph.target_rows]
        return self.infer(model) if self.infer is not None and self.in_store else super().predict(model)

    def blocks_of(self, model: nn.Module, batch: Batch) -> Any:
        """Return the one block for every hop."""
        return SameBlock(batch.blocks[0], hops_of(model))

    def step_loss(self, model: nn.Module, batch: Batch, step: int) -> tuple[Tensor, int]:
        """Return the mean loss of the seeds, or their weighted sum where the sampler has weights."""
        count = batch.seeds.numel()
        if not count:
            return torch.zeros(()), 0
        y = batch.y
        assert y is not None, "a strategy is made of a graph with labels"
        losses = each_loss(self.loss, self.batch_outputs(model, batch), y)
        weight = getattr(batch, "weight", None)
        loss = losses.sum() / count if weight is None else (losses * weight.to(losses.dtype)).sum()
        return loss, count


@strategies.add("clustered")
class Clustered(Subgraphs):
    """Train on `together` of `clusters` clusters a step (Cluster-GCN), each once an epoch.

    Edges between the clusters of a step are restored and degrees counted in the batch. `enhance` adds that
    share of the diagonal. With all clusters together a step is that of the whole graph. Evaluation is exact.
    """

    name: ClassVar[str] = "clustered"

    def __init__(
        self,
        graph: Graph,
        *,
        loss: LossName = "auto",
        seed: int = 0,
        events: Events | None = None,
        autocast: torch.dtype | None = None,
        clusters: Annotated[int, Range(least=1)] = 50,
        together: Annotated[int, Range(least=1)] = 5,
        enhance: Annotated[float, Range(least=0)] = 0.0,
        partitioner: str | Mapping[str, Any] = "metis",
        prepare: Annotated[int, Range(least=0)] = 1,
        store: str | Mapping[str, Any] | None = None,
        device: torch.device | None = None,
    ) -> None:
        given: dict[str, Any] = {"autocast": autocast, "store": store, "device": device}
        super().__init__(graph, loss=loss, seed=seed, events=events, **given)
        if together > clusters:
            raise RecipeError(f"strategy.together: {together} of {clusters} clusters; use at most {clusters}")
        self.clusters, self.together, self.enhance = clusters, together, enhance
        self.partitioner, self.threads = partitioner, prepare

    def make_loader(self) -> Loader:
        """Return the loader of clusters; cutting the graph is told as a stage of the run."""
        with self.events.span("partition", parts=self.clusters):
            sampler = ClusterSampler(
                self.graph,
                self.clusters,
                seed=int(self.clock[0]),
                enhance=self.enhance,
                partitioner=self.partitioner,
            )
        numbers = torch.arange(self.clusters)
        return Loader(sampler, numbers, batch_size=self.together, threads=self.threads)


@strategies.add("saint")
class Saint(Subgraphs):
    """Train on random subgraphs (GraphSAINT): by `how` = walk, node or edge, `size` of them drawn a step.

    Sums over neighbours and the loss are divided by the chances of what they hold, estimated in trial
    subgraphs, so that they are right in the mean. `steps` is how many an epoch has, by default as many as
    together hold the nodes of the graph once. Evaluation is exact.
    """

    name: ClassVar[str] = "saint"

    def __init__(
        self,
        graph: Graph,
        *,
        loss: LossName = "auto",
        seed: int = 0,
        events: Events | None = None,
        autocast: torch.dtype | None = None,
        how: Literal["walk", "node", "edge"] = "walk",
        size: Annotated[int, Range(least=1)] = 2000,
        length: Annotated[int, Range(least=1)] = 2,
        coverage: Annotated[int, Range(least=1)] = 20,
        steps: Annotated[int, Range(least=1)] | None = None,
        prepare: Annotated[int, Range(least=0)] = 1,
        store: str | Mapping[str, Any] | None = None,
        device: torch.device | None = None,
    ) -> None:
        given: dict[str, Any] = {"autocast": autocast, "store": store, "device": device}
        super().__init__(graph, loss=loss, seed=seed, events=events, **given)
        self.options: dict[str, Any] = {"how": how, "size": size, "length": length, "coverage": coverage}
        self.steps, self.threads = steps, prepare

    def make_loader(self) -> Loader:
        """Return the loader of subgraphs; the trials are told as a stage of the run."""
        with self.events.span("trial subgraphs"):
            sampler = SaintSampler(self.graph, seed=int(self.clock[0]), **self.options)
        steps = self.steps or -(-self.graph.num_nodes // max(int(sampler.mean_nodes), 1))
        numbers = torch.arange(steps)
        return Loader(sampler, numbers, batch_size=1, shuffle=False, threads=self.threads)
