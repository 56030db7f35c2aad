"""Steps on subgraphs that the sampler chooses: Cluster-GCN's clusters, GraphSAINT's random ones."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack, cast

import torch
from torch import Tensor, nn

from weft.config import Range
from weft.errors import RecipeError
from weft.exchanges.accuracy import NOT_MEASURED, AccuracyCost
from weft.graph.graph import Graph
from weft.samplers.base import Batch
from weft.samplers.cluster import cutting
from weft.samplers.core.subgraph import Subgraph
from weft.samplers.loader import Loader
from weft.stores.open import check_store
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.call import SameBlock, hops_of
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.batch_source import BatchSource, source_of
from weft.strategies.minibatch.loaded import LoadedBatches
from weft.strategies.reducer import reducer_of
from weft.strategies.shared import Shared

CLUSTERS = 50


class Subgraphs(LoadedBatches):
    """Every layer sees the subgraph of the step; the loss is that of its training nodes.

    On several workers each computes the rows that it owns, so a step is that of one process.
    """

    def __init__(self, source: BatchSource, *, threads: int) -> None:
        super().__init__(source.layout.shared, source.layout)
        self.source, self.threads = source, threads

    def runs_together(self, model: nn.Module) -> bool:
        """Return True: rows of the others are read in every layer."""
        return True

    def blocks_of(self, model: nn.Module, batch: Batch) -> Any:
        """Return the one block for every hop."""
        return SameBlock(batch.blocks[0], hops_of(model))

    def loss(self, model: nn.Module, batch: Batch, step: int) -> tuple[Tensor, int]:
        """Return the own share of the mean loss of the seeds, or of their weighted sum, and their number."""
        part, task = cast(Subgraph, batch), self.shared.task
        if not part.count:
            return torch.zeros(()), 0
        outputs, y = self.batch_outputs(model, batch), task.values_of_batch(batch)
        if part.weight is None:
            return task.loss.summed(outputs, y) / part.count, part.count
        losses = task.loss.each(outputs, y)
        return (losses * part.weight.to(losses.dtype)).sum(), part.count

    def batch_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the outputs of the own seeds, in at least 32 bits."""
        h = self.batch_rows(model, batch)[cast(Subgraph, batch).rows]
        return self.shared.task.of_batch(model, h, batch)

    def close(self) -> None:
        """Close the store that was opened."""
        self.source.close()


class Clusters(Subgraphs):
    """`together` of the clusters of a graph a step."""

    def __init__(
        self,
        source: BatchSource,
        clusters: int,
        *,
        together: int,
        enhance: float,
        partitioner: str | Mapping[str, Any],
        threads: int,
    ) -> None:
        super().__init__(source, threads=threads)
        self.clusters, self.together = clusters, together
        self.cutting: dict[str, Any] = {"enhance": enhance, "partitioner": partitioner}

    def make_loader(self, model: nn.Module) -> Loader:
        """Return the loader of clusters; cutting the graph is told as a stage of the run."""
        sampler = self.source.clusters(self.clusters, seed=int(self.shared.clock[0]), **self.cutting)
        options = {"batch_size": self.together, "threads": self.threads}
        return self.source.number_loader(sampler, self.clusters, **options)


class RandomSubgraphs(Subgraphs):
    """A random subgraph a step, `steps` of them an epoch."""

    def __init__(self, source: BatchSource, *, steps: int | None, threads: int, **options: Any) -> None:
        super().__init__(source, threads=threads)
        self.steps, self.options = steps, options

    def make_loader(self, model: nn.Module) -> Loader:
        """Return the loader of subgraphs; the trials are told as a stage of the run."""
        with self.shared.events.span("trial subgraphs"):
            sampler = self.source.saint(seed=int(self.shared.clock[0]), **self.options)
        mean = max(int(sampler.chances.mean_nodes), 1)
        steps = self.steps or -(-self.layout.graph.num_nodes // mean)
        options = {"batch_size": 1, "shuffle": False, "threads": self.threads}
        return self.source.number_loader(sampler, steps, **options)


def subgraph_source(
    shared: Shared,
    graph: Graph | LocalGraph,
    store: str | Mapping[str, Any] | None,
    part_rank: Sequence[int] | None,
) -> BatchSource:
    """Return where subgraphs come from; `store` is where features are read from in one process."""
    source = source_of(shared, graph, part_rank=part_rank, store=store)
    if store is not None and source.in_parts:
        raise RecipeError(
            f"strategy.store: workers of {shared.name!r} read their own rows, where these lie; leave it out"
        )
    return source


@strategies.add("clustered")
class Clustered(Strategy):
    """Train on `together` of `clusters` clusters a step (Cluster-GCN), each once an epoch.

    Edges between the clusters of a step are restored and degrees counted in the batch. `enhance` adds that
    share of the diagonal to sums and means over neighbours; attention is refused then. With all clusters
    together (`together = "all"`) a step is that of the whole graph. On several workers clusters are the parts
    that these hold; a graph that was cut before has its parts as clusters, else there are 50. Evaluation is
    exact.
    """

    name: ClassVar[str] = "clustered"
    on_workers: ClassVar[bool] = True
    score_costs: ClassVar[tuple[AccuracyCost, ...]] = NOT_MEASURED
    in_batches: ClassVar[bool] = True
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    rows_by_owner: ClassVar[bool] = True
    batching: Clusters

    def __init__(
        self,
        graph: Graph | LocalGraph,
        *,
        part_rank: Sequence[int] | None = None,
        clusters: Annotated[int, Range(least=1)] | None = None,
        together: Annotated[int, Range(least=1)] | Literal["all"] = 5,
        enhance: Annotated[float, Range(least=0)] = 0.0,
        partitioner: str | Mapping[str, Any] = "metis",
        prepare: Annotated[int, Range(least=0)] = 1,
        store: str | Mapping[str, Any] | None = None,
        **context: Unpack[RunContext],
    ) -> None:
        super().__init__(graph, **context)
        source = subgraph_source(self.shared, graph, store, part_rank)
        count = self._count(source, clusters)
        chosen = count if together == "all" else together
        if chosen > count:
            raise RecipeError(f"strategy.together: {together} of {count} clusters; use at most {count}")
        options: dict[str, Any] = {"enhance": enhance, "partitioner": partitioner, "threads": prepare}
        batching = Clusters(source, count, together=chosen, **options)
        self.compose(source.layout, batching, reducer_of(self.group))

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse a store that cannot be, before any data is read."""
        if options.get("store") is not None:
            check_store(options["store"])

    @classmethod
    def layouts(cls, workers: int) -> list[dict[str, Any]]:
        """Return the point at which a step is that of the whole graph."""
        return [{"together": "all"}]

    @classmethod
    def arrangement(cls, options: Mapping[str, Any], workers: int) -> dict[str, Any]:
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
        return cutting(options.get("partitioner", cls.partitioner))

    @staticmethod
    def _count(source: BatchSource, asked: int | None) -> int:
        cut = source.num_parts
        if cut is None:
            return asked or CLUSTERS
        if asked not in (None, cut):
            raise RecipeError(
                f"strategy.clusters: the graph is in {cut} parts, and these are the clusters; leave it out, "
                f"or cut the graph into {asked}"
            )
        return cut


@strategies.add("saint")
class Saint(Strategy):
    """Train on random subgraphs (GraphSAINT): by `how` = walk, node or edge, `size` of them drawn a step.

    Walks are of `length` steps, by default 2. Sums over neighbours and the loss are divided by the
    chances of what they hold, estimated in trial subgraphs, so that they are right in the mean. `steps` is
    how many an epoch has, by default as many as together hold the nodes of the graph once. Several workers
    draw the subgraphs together. Evaluation is exact.
    """

    name: ClassVar[str] = "saint"
    on_workers: ClassVar[bool] = True
    score_costs: ClassVar[tuple[AccuracyCost, ...]] = NOT_MEASURED
    in_batches: ClassVar[bool] = True
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    rows_by_owner: ClassVar[bool] = True
    batching: RandomSubgraphs

    def __init__(
        self,
        graph: Graph | LocalGraph,
        *,
        part_rank: Sequence[int] | None = None,
        partitioner: str | Mapping[str, Any] = "metis",
        parts: Annotated[int, Range(least=1)] | None = None,
        how: Literal["walk", "node", "edge"] = "walk",
        size: Annotated[int, Range(least=1)] = 2000,
        length: Annotated[int, Range(least=1)] | None = None,
        coverage: Annotated[int, Range(least=1)] = 20,
        steps: Annotated[int, Range(least=1)] | None = None,
        prepare: Annotated[int, Range(least=0)] = 1,
        store: str | Mapping[str, Any] | None = None,
        **context: Unpack[RunContext],
    ) -> None:
        super().__init__(graph, **context)
        if length is not None and how != "walk":
            raise RecipeError(
                f"strategy.length: is that of walks, {how}s have none; leave it out, or use how = 'walk'"
            )
        source = subgraph_source(self.shared, graph, store, part_rank)
        options: dict[str, Any] = {"how": how, "size": size, "length": length, "coverage": coverage}
        batching = RandomSubgraphs(source, steps=steps, threads=prepare, **options)
        self.compose(source.layout, batching, reducer_of(self.group))

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse a store that cannot be, before any data is read."""
        if options.get("store") is not None:
            check_store(options["store"])
