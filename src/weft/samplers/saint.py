"""GraphSAINT: Zeng et al., 2020. Random subgraphs, with weights that take the bias of drawing them away."""

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.draw import Stream, draw, fold
from weft.errors import InputError
from weft.graph.graph import Graph
from weft.samplers.base import Batch, Sampler, samplers
from weft.samplers.subgraph import Rows

How = Literal["walk", "node", "edge"]
_TRIAL = 1  # the layer of the keys of trial draws
Ints = NDArray[np.int64]


@samplers.add("saint")
class SaintSampler(Sampler):
    """Draw subgraphs by random walks against the edges, by nodes, or by edges; a new one each step.

    `size` is the number of walks, nodes or edges drawn, with replacement; `length` the steps of a walk. Nodes
    are drawn by the squared weights that others give them, edges by the sum of their weights both ways, as
    in the paper. How often nodes and edges appear is counted in trial subgraphs before, until a node has
    been in about `coverage` of them: a sum over neighbours is divided by the chance of each edge given its
    destination, and the loss of a node by its own, so that both are right in the mean.
    """

    neighbourhoods: ClassVar[bool] = False

    def __init__(
        self,
        graph: Graph,
        how: How = "walk",
        *,
        size: int = 2000,
        length: int = 2,
        coverage: int = 20,
        seed: int = 0,
    ) -> None:
        super().__init__(graph, seed=seed, resample="step")
        if how not in ("walk", "node", "edge"):
            raise InputError(f"how must be 'walk', 'node' or 'edge', got {how!r}")
        for name, value in (("size", size), ("length", length), ("coverage", coverage)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
        if how == "edge" and not graph.num_edges:
            raise InputError("how='edge' needs a graph with edges; use 'node'")
        self.how, self.size, self.length = how, size, length
        self.rows = Rows(graph)
        self._chances = None if how == "walk" else _running(self._weights())
        self.num_trials = 0
        self.node_count = torch.zeros(graph.num_nodes)
        self.edge_count = torch.zeros(graph.num_edges)
        self._try(coverage)

    @property
    def mean_nodes(self) -> float:
        """Nodes of a subgraph, on average."""
        return float(self.node_count.sum()) / self.num_trials

    def sample(self, seeds: Any = (), epoch: int = 0, step: int = 0) -> Batch:
        """Return the subgraph of a step, which is a function of (seed, epoch, step) alone."""
        return self.subgraph(self.key(epoch, step, 0), epoch=epoch, step=step)

    def subgraph(self, key: int, **moment: Any) -> Batch:
        """Return the subgraph that a key draws."""
        nodes, num_seeds = self.rows.ordered(torch.from_numpy(np.unique(self._draw(key))))
        indptr, src, edge_ids = self.rows.edges(nodes)
        node_count, edge_count = self.node_count[nodes].clamp(min=1), self.edge_count[edge_ids].clamp(min=1)
        dst = torch.repeat_interleave(indptr.diff(), output_size=len(src))
        batch = self.rows.batch(
            nodes,
            num_seeds,
            (indptr, src, edge_ids),
            edge_scale=node_count[dst] / edge_count,
            degrees=self.graph,
            **moment,
        )
        every = max(int(self.rows.is_seed.sum()), 1)
        batch.weight = self.num_trials / node_count[:num_seeds] / every
        return batch

    def trial_key(self, number: int) -> int:
        """Return the key of a trial subgraph."""
        return fold(self.seed, Stream.SAMPLE, 0, number, _TRIAL)

    def _try(self, coverage: int) -> None:
        wanted = coverage * max(self.graph.num_nodes, 1)
        while float(self.node_count.sum()) < wanted:
            nodes = torch.from_numpy(np.unique(self._draw(self.trial_key(self.num_trials))))
            self.node_count[nodes] += 1
            self.edge_count[self.rows.edges(nodes)[2]] += 1
            self.num_trials += 1

    def _draw(self, key: int) -> Ints:
        places = _uniform(key, np.arange(self.size), 0)
        if self.how == "walk":
            return self._walk(key, (places * self.graph.num_nodes).astype(np.int64))
        assert self._chances is not None
        drawn: Ints = np.searchsorted(self._chances, places * self._chances[-1], side="right")
        drawn = np.minimum(drawn, len(self._chances) - 1)
        if self.how == "node":
            return drawn
        src = self.graph.indices.numpy()[drawn].astype(np.int64)
        dst = np.searchsorted(self.graph.indptr.numpy(), drawn, side="right") - 1
        return np.concatenate([src, dst])

    def _walk(self, key: int, nodes: Ints) -> Ints:
        """Return the nodes of walks; one without incoming edges stays."""
        indptr, indices = self.graph.indptr.numpy(), self.graph.indices.numpy()
        seen = [nodes]
        for number in range(1, self.length + 1):
            start, degree = indptr[nodes], indptr[nodes + 1] - indptr[nodes]
            places = _uniform(key, np.arange(len(nodes)), number)
            chosen = start + np.minimum((places * degree).astype(np.int64), np.maximum(degree - 1, 0))
            moved = nodes.copy()
            moved[degree > 0] = indices[chosen[degree > 0]]
            nodes = moved
            seen.append(nodes)
        return np.concatenate(seen)

    def _weights(self) -> Tensor:
        """Return what nodes or edges are drawn by, [N] or [E]."""
        graph = self.graph
        share = graph.in_degree().double().clamp(min=1).reciprocal()
        dst = torch.repeat_interleave(graph.indptr.diff(), output_size=graph.num_edges)
        src = graph.indices.long()
        if self.how == "edge":
            return share[dst] + share[src]
        weight = torch.zeros(graph.num_nodes, dtype=torch.float64).index_add_(0, src, share[dst].square())
        return weight if bool(weight.any()) else torch.ones_like(weight)


def _running(weights: Tensor) -> NDArray[np.float64]:
    running: NDArray[np.float64] = weights.cumsum(0).numpy()
    return running


def _uniform(key: int, ids: Ints, lane: int) -> NDArray[np.float64]:
    """Return numbers in [0, 1) of 53 bits."""
    high, low = (draw(key, ids, 2 * lane + half).astype(np.uint64) for half in (0, 1))
    return ((high << np.uint64(32) | low) >> np.uint64(11)).astype(np.float64) * 2.0**-53
