"""Cluster-GCN: Chiang et al., 2019. A step sees the subgraph of some clusters, edges between them too."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from weft.errors import GraphError, InputError
from weft.graph.graph import Graph
from weft.partitioners import partition
from weft.partitioners.base import partitioners
from weft.samplers.base import Batch, Sampler, samplers
from weft.samplers.core.subgraph import Rows


@samplers.add("cluster")
class ClusterSampler(Sampler):
    """Cut the graph into `clusters` once; a batch is the subgraph of those asked for, by number.

    Degrees are those in the batch: the matrix is normalised anew, as in the paper. `enhance` adds that share
    of its diagonal to it, which deep models need; self loops must be in the graph then, and layers sum or
    average neighbours: attention and largest values are refused. All clusters in one batch are the whole
    graph. `parts` [N], the cluster of each node, stands in for cutting. `train` [n] are the ids of the nodes
    to train on, by default those of the graph's training split. Clusters do not depend on `seed`, which the
    order of steps is drawn by; a partitioner has its own.
    """

    neighbourhoods: ClassVar[bool] = False

    graph: Graph

    def __init__(
        self,
        graph: Graph,
        clusters: int = 50,
        *,
        seed: int = 0,
        enhance: float = 0.0,
        partitioner: str | Mapping[str, Any] = "metis",
        parts: Tensor | None = None,
        train: Tensor | None = None,
    ) -> None:
        super().__init__(graph, seed=seed)
        if isinstance(clusters, bool) or not isinstance(clusters, int) or clusters < 1:
            raise InputError(f"clusters must be a whole number of at least 1, got {clusters!r}")
        if isinstance(enhance, bool) or not isinstance(enhance, int | float) or not 0 <= enhance < math.inf:
            raise InputError(f"enhance must be a number of at least 0, got {enhance!r}")
        self.num_clusters, self.enhance = clusters, float(enhance)
        self.rows = Rows(graph, train)
        if parts is None:
            parts = partition(graph, clusters, **cutting(partitioner)).parts
        _check_parts(parts, graph.num_nodes, clusters)
        self.order = torch.argsort(parts.long(), stable=True)
        sizes = torch.bincount(parts.long(), minlength=clusters)
        self.offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).tolist()
        if self.enhance:
            self._check_loops()

    def sample(self, seeds: Any, epoch: int = 0, step: int = 0) -> Batch:
        """Return the subgraph of these clusters; its seeds are their training nodes."""
        chosen = torch.as_tensor(seeds).tolist()
        wrong = [each for each in chosen if not 0 <= each < self.num_clusters]
        if wrong or len(set(chosen)) < len(chosen):
            what = (
                f"no cluster {wrong[0]}: 0 … {self.num_clusters - 1}" if wrong else "a cluster is there twice"
            )
            raise GraphError(what)
        clusters = [self.order[self.offsets[each] : self.offsets[each + 1]] for each in chosen]
        nodes, num_seeds = self.rows.ordered(torch.cat([self.order[:0], *clusters]))
        edges = self.rows.edges(nodes)
        scale = None
        if self.enhance:
            indptr, src, _ = edges
            dst = torch.repeat_interleave(indptr.diff(), output_size=len(src))
            # Of the self loops alone: the diagonal of the paper's A + λ · diag(A), which there must be.
            scale = 1.0 + self.enhance * (src == dst)
        more: dict[str, Any] = {"edge_scale": scale, "enhanced": self.enhance > 0}
        return self.rows.batch(nodes, num_seeds, edges, **more, epoch=epoch, step=step)

    def _check_loops(self) -> None:
        nodes = torch.arange(self.graph.num_nodes)
        dst = torch.repeat_interleave(self.graph.indptr.diff())
        loops = torch.unique_consecutive(dst[self.graph.indices == dst])
        if len(loops) < len(nodes):
            raise GraphError(no_loops(len(nodes) - len(loops)))


def _check_parts(parts: Tensor, num_nodes: int, clusters: int) -> None:
    if tuple(parts.shape) != (num_nodes,):
        raise GraphError(
            f"parts: expected a cluster for each of {num_nodes:,} nodes, got {list(parts.shape)}"
        )
    wrong = ((parts < 0) | (parts >= clusters)).nonzero().flatten()
    if len(wrong):
        node = int(wrong[0])
        raise GraphError(f"parts: node {node:,} is in {int(parts[node])}, clusters are 0 … {clusters - 1}")


def no_loops(count: int) -> str:
    """Return why nothing can be added to a diagonal."""
    return (
        f"enhance: {count:,} nodes have no self loop, so there is no diagonal to add to; use "
        "data.self_loops = true (in Python: graph.add_self_loops())"
    )


def cutting(partitioner: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the name and the options of a partitioner that cuts clusters: many and small, so quickly."""
    named = {"name": partitioner} if isinstance(partitioner, str) else {"name": "metis", **partitioner}
    return {**partitioners[named["name"]].for_clusters, **named}
