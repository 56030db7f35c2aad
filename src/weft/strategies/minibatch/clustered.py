"""Steps on subgraphs that the sampler chooses: Cluster-GCN's clusters, GraphSAINT's random ones."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Unpack, cast

import torch
from torch import Tensor, nn

from weft.config import Range
from weft.errors import RecipeError
from weft.graph.graph import Graph
from weft.samplers.base import Batch, Sampler
from weft.samplers.cluster import ClusterSampler, cutting
from weft.samplers.core.subgraph import Subgraph
from weft.samplers.loader import Loader
from weft.samplers.saint import SaintSampler
from weft.samplers.workers.together import TogetherLoader
from weft.stores.open import check_store, open_store, with_store
from weft.strategies.base import strategies
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.batches import Batches, Shared
from weft.strategies.minibatch.subgraph_parts import ClusterParts, Pieces, SaintParts
from weft.strategies.single import SameBlock, hops_of

CLUSTERS = 50


class Subgraphs(Batches):
    """Every layer sees the subgraph of the step; the loss is that of its training nodes.

    On several workers each computes the rows that it owns, so a step is that of one process. `store` is where
    features are read from in one process, a name or a table with its options.
    """

    def __init__(
        self,
        graph: Graph | LocalGraph,
        *,
        store: str | Mapping[str, Any] | None = None,
        prepare: int = 1,
        **given: Unpack[Shared],
    ) -> None:
        if store is not None and isinstance(graph, LocalGraph):
            raise RecipeError(
                f"strategy.store: workers of {self.name!r} read their own rows, where these lie; leave it out"
            )
        if store is not None and isinstance(graph, Graph):
            self._opened = open_store(store, graph)
            graph = with_store(graph, self._opened)
        super().__init__(graph, **given)
        self.threads = prepare

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse a store that cannot be, before any data is read."""
        if options.get("store") is not None:
            check_store(options["store"])

    def runs_together(self, model: nn.Module) -> bool:
        """Return True: rows of the others are read in every layer."""
        return True

    def blocks_of(self, model: nn.Module, batch: Batch) -> Any:
        """Return the one block for every hop."""
        return SameBlock(batch.blocks[0], hops_of(model))

    def step_loss(self, model: nn.Module, batch: Batch, step: int) -> tuple[Tensor, int]:
        """Return the own share of the mean loss of the seeds, or of their weighted sum, and their number."""
        part = cast(Subgraph, batch)
        if not part.count:
            return torch.zeros(()), 0
        outputs, y = self.batch_outputs(model, batch), self.task.values_of_batch(batch)
        weight = part.weight
        if weight is None:
            return self.task.loss.summed(outputs, y) / part.count, part.count
        losses = self.task.loss.each(outputs, y)
        return (losses * weight.to(losses.dtype)).sum(), part.count

    def batch_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the outputs of the own seeds, in at least 32 bits."""
        return self.task.rows_out(model, self.batch_rows(model, batch)[cast(Subgraph, batch).rows])

    def pieces(self, graph: LocalGraph) -> Pieces:
        """Return what cuts a worker's parts of subgraphs."""
        assert self._exact is not None, "made with parts of a graph"
        return Pieces(graph, self._exact.exchange.whole_plan, self.group, self._lane, self.clock)

    def _loader_of(self, sampler: Sampler, numbers: int, **options: Any) -> Loader:
        """Return the loader of so many numbers, each a cluster or a random subgraph."""
        kind = Loader if isinstance(self.graph, Graph) else TogetherLoader
        courier = None if self.nearby is None else self.nearby.courier
        return kind(sampler, torch.arange(numbers), threads=self.threads, courier=courier, **options)


@strategies.add("clustered")
class Clustered(Subgraphs):
    """Train on `together` of `clusters` clusters a step (Cluster-GCN), each once an epoch.

    Edges between the clusters of a step are restored and degrees counted in the batch. `enhance` adds that
    share of the diagonal to sums and means over neighbours; attention is refused then. With all clusters
    together (`together = "all"`) a step is that of the whole graph. On several workers clusters are the parts
    that these hold; a graph that was cut before has its parts as clusters, else there are 50. Evaluation is
    exact.
    """

    name: ClassVar[str] = "clustered"

    def __init__(
        self,
        graph: Graph | LocalGraph,
        *,
        clusters: Annotated[int, Range(least=1)] | None = None,
        together: Annotated[int, Range(least=1)] | Literal["all"] = 5,
        enhance: Annotated[float, Range(least=0)] = 0.0,
        partitioner: str | Mapping[str, Any] = "metis",
        prepare: Annotated[int, Range(least=0)] = 1,
        store: str | Mapping[str, Any] | None = None,
        **given: Unpack[Shared],
    ) -> None:
        super().__init__(graph, prepare=prepare, store=store, **given)
        self.clusters = self._count(graph, clusters)
        self.together = self.clusters if together == "all" else together
        if self.together > self.clusters:
            raise RecipeError(
                f"strategy.together: {together} of {self.clusters} clusters; use at most {self.clusters}"
            )
        self.enhance, self.partitioning_options = enhance, partitioner

    @classmethod
    def layouts(cls, workers: int) -> list[dict[str, Any]]:
        """Return the point at which a step is that of the whole graph."""
        return [{"together": "all"}]

    @classmethod
    def layout(cls, options: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return that parts are clusters: they are cut in another way than parts of other strategies."""
        return {"clusters": True}

    @classmethod
    def num_parts(cls, options: Mapping[str, Any], workers: int) -> int:
        """Return the number of clusters: parts are clusters, and a worker holds several."""
        count: int = options.get("clusters") or max(CLUSTERS, workers)
        if count < workers:
            raise RecipeError(f"strategy.clusters: {count} cannot occupy {workers} workers; use {workers}")
        return count

    @classmethod
    def partitioning(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the name and the options of the partitioner."""
        return cutting(options.get("partitioner", cls.partitioner))

    def make_loader(self, model: nn.Module) -> Loader:
        """Return the loader of clusters; cutting the graph is told as a stage of the run."""
        options: dict[str, Any] = {"seed": int(self.clock[0]), "enhance": self.enhance}
        if isinstance(self.graph, LocalGraph):
            sampler: Sampler = ClusterParts(self.pieces(self.graph), **options)
        else:
            with self.events.span("partition", parts=self.clusters):
                options["partitioner"] = self.partitioning_options
                sampler = ClusterSampler(self.graph, self.clusters, **options)
        return self._loader_of(sampler, self.clusters, batch_size=self.together)

    @staticmethod
    def _count(graph: Graph | LocalGraph, asked: int | None) -> int:
        if isinstance(graph, Graph):
            return asked or CLUSTERS
        held = graph.shard.num_parts
        if asked not in (None, held):
            raise RecipeError(
                f"strategy.clusters: the graph is in {held} parts, and these are the clusters; leave it out, "
                f"or cut the graph into {asked}"
            )
        return held


@strategies.add("saint")
class Saint(Subgraphs):
    """Train on random subgraphs (GraphSAINT): by `how` = walk, node or edge, `size` of them drawn a step.

    Walks are of `length` steps, by default 2. Sums over neighbours and the loss are divided by the
    chances of what they hold, estimated in trial subgraphs, so that they are right in the mean. `steps` is
    how many an epoch has, by default as many as together hold the nodes of the graph once. Several workers
    draw the subgraphs together. Evaluation is exact.
    """

    name: ClassVar[str] = "saint"

    def __init__(
        self,
        graph: Graph | LocalGraph,
        *,
        partitioner: str | Mapping[str, Any] = "metis",
        parts: Annotated[int, Range(least=1)] | None = None,
        how: Literal["walk", "node", "edge"] = "walk",
        size: Annotated[int, Range(least=1)] = 2000,
        length: Annotated[int, Range(least=1)] | None = None,
        coverage: Annotated[int, Range(least=1)] = 20,
        steps: Annotated[int, Range(least=1)] | None = None,
        prepare: Annotated[int, Range(least=0)] = 1,
        store: str | Mapping[str, Any] | None = None,
        **given: Unpack[Shared],
    ) -> None:
        super().__init__(graph, prepare=prepare, store=store, **given)
        if length is not None and how != "walk":
            raise RecipeError(
                f"strategy.length: is that of walks, {how}s have none; leave it out, or use how = 'walk'"
            )
        self.options: dict[str, Any] = {"how": how, "size": size, "length": length, "coverage": coverage}
        self.steps = steps

    def make_loader(self, model: nn.Module) -> Loader:
        """Return the loader of subgraphs; the trials are told as a stage of the run."""
        sampler: SaintSampler | SaintParts
        options = {"seed": int(self.clock[0]), **self.options}
        with self.events.span("trial subgraphs"):
            if isinstance(self.graph, LocalGraph):
                sampler = SaintParts(self.pieces(self.graph), **options)
            else:
                sampler = SaintSampler(self.graph, **options)
        steps = self.steps or -(-self.graph.num_nodes // max(int(sampler.chances.mean_nodes), 1))
        return self._loader_of(sampler, steps, batch_size=1, shuffle=False)
