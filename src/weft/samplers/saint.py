"""GraphSAINT: Zeng et al., 2020. Random subgraphs, with weights that take the bias of drawing them away."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.draw import Stream, draw, fold
from weft.errors import InputError
from weft.graph.graph import Graph
from weft.samplers.base import Batch, Sampler, samplers
from weft.samplers.core.in_edges import InEdges, Ints
from weft.samplers.core.subgraph import Rows

How = Literal["walk", "node", "edge"]
_TRIAL = 1  # the layer of the keys of trial draws


class SaintDraws:
    """The nodes of random subgraphs: by walks against the edges, by nodes, or by edges."""

    def __init__(
        self, topology: InEdges, how: How = "walk", *, size: int = 2000, length: int | None = None
    ) -> None:
        if how not in ("walk", "node", "edge"):
            raise InputError(f"how must be 'walk', 'node' or 'edge', got {how!r}")
        if length is not None and how != "walk":
            raise InputError(f"length is that of walks, {how}s have none; leave it out, or use how = 'walk'")
        length = 2 if length is None else length
        for name, value in (("size", size), ("length", length)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
        if how == "edge" and not topology.num_edges:
            raise InputError("how='edge' needs a graph with edges; use 'node'")
        self.topology, self.how, self.size, self.length = topology, how, size, length
        self._running = torch.zeros(0, dtype=torch.int64)  # of the weights that nodes, or rows, are drawn by
        self._edges = self._running  # of the weights of edges, where they are drawn
        if how == "node":
            self._running = topology.node_weights().cumsum(0)
        elif how == "edge":
            weights, rows = topology.edge_weights()
            self._edges, self._running = weights.cumsum(0), rows.cumsum(0)

    def nodes(self, key: int) -> Tensor:
        """Return the nodes that a key draws, ascending, each once."""
        return torch.from_numpy(np.unique(self._draw(key)))

    def _draw(self, key: int) -> Ints:
        places = _uniform(key, np.arange(self.size), 0)
        if self.how == "walk":
            return self._walk(key, (places * self.topology.num_nodes).astype(np.int64))
        running = self._running.numpy()
        # Weights are whole numbers and their running sum is exact, so that a table in parts finds the same
        # node.
        wanted = (places * float(running[-1])).astype(np.int64)
        drawn: Ints = np.minimum(np.searchsorted(running, wanted, side="right"), len(running) - 1)
        if self.how == "node":
            return drawn
        before = np.where(drawn > 0, running[drawn - 1], 0)
        return np.concatenate([self.topology.pick(self._edges, drawn, wanted - before), drawn])

    def _walk(self, key: int, nodes: Ints) -> Ints:
        """Return the nodes of walks; one without incoming edges stays."""
        seen = [nodes]
        for number in range(1, self.length + 1):
            nodes = self.topology.follow(nodes, _uniform(key, np.arange(len(nodes)), number))
            seen.append(nodes)
        return np.concatenate(seen)


class Chances:
    """How often nodes, and edges held, are in a subgraph: counted in trial ones, and used as estimates.

    `edges_among(nodes)` gives the edges held whose ends are among some nodes. Trials go on until a node has
    been in about `coverage` of them.
    """

    def __init__(
        self,
        draws: SaintDraws,
        edges_among: Callable[[Tensor], Tensor],
        *,
        num_edges: int,
        coverage: int = 20,
        seed: int = 0,
    ) -> None:
        if isinstance(coverage, bool) or not isinstance(coverage, int) or coverage < 1:
            raise InputError(f"coverage must be a whole number of at least 1, got {coverage!r}")
        self.num_trials = 0
        self.nodes = torch.zeros(draws.topology.num_nodes)
        self.edges = torch.zeros(num_edges)
        covered = 0
        # By nodes covered and not by a number of trials: large subgraphs need fewer of them for equal
        # estimates.
        while covered < coverage * max(len(self.nodes), 1):
            drawn = draws.nodes(trial_key(seed, self.num_trials))
            covered += len(drawn)
            self.nodes[drawn] += 1
            self.edges[edges_among(drawn)] += 1
            self.num_trials += 1

    @property
    def mean_nodes(self) -> float:
        """Nodes of a subgraph, on average."""
        return float(self.nodes.sum()) / self.num_trials

    def edge_scale(self, dst: Tensor, edges: Tensor) -> Tensor:
        """Return what edges count in sums, given the node that each ends in: its count over the edge's."""
        # An edge may come that no trial had: counted as 1 it weighs at most what its destination's count
        # allows.
        return self.nodes[dst].clamp(min=1) / self.edges[edges].clamp(min=1)

    def loss_weight(self, seeds: Tensor, num_seeds: int) -> Tensor:
        """Return what the loss of nodes counts, such that all of `num_seeds` have 1 together in the mean."""
        return self.num_trials / self.nodes[seeds].clamp(min=1) / max(num_seeds, 1)


@samplers.add("saint")
class SaintSampler(Sampler):
    """Draw subgraphs by random walks against the edges, by nodes, or by edges; a new one each step.

    `size` is the number of walks, nodes or edges drawn, with replacement; `length` the steps of a walk (2).
    Nodes are drawn by the squared weights that others give them, edges by the sum of their weights both ways,
    as in the paper. How often nodes and edges appear is counted in trial subgraphs before, until a node has
    been in about `coverage` of them: a sum over neighbours is divided by the chance of each edge given its
    destination, and the loss of a node by its own, so that both are right in the mean. `train` [n] are the
    ids of the nodes to train on, by default those of the graph's training split.
    """

    neighbourhoods: ClassVar[bool] = False
    graph: Graph

    def __init__(
        self,
        graph: Graph,
        how: How = "walk",
        *,
        size: int = 2000,
        length: int | None = None,
        coverage: int = 20,
        seed: int = 0,
        train: Tensor | None = None,
    ) -> None:
        super().__init__(graph, seed=seed, resample="step")
        self.rows = Rows(graph, train)
        self.draws = SaintDraws(InEdges(graph.indptr, graph.indices), how, size=size, length=length)
        self.chances = Chances(
            self.draws,
            lambda nodes: self.rows.edges(nodes)[2],
            num_edges=graph.num_edges,
            coverage=coverage,
            seed=seed,
        )

    def sample(self, seeds: Any = (), epoch: int = 0, step: int = 0) -> Batch:
        """Return the subgraph of a step, which is a function of (seed, epoch, step) alone."""
        return self.subgraph(self.key(epoch, step, 0), epoch=epoch, step=step)

    def subgraph(self, key: int, **moment: Any) -> Batch:
        """Return the subgraph that a key draws."""
        nodes, num_seeds = self.rows.ordered(self.draws.nodes(key))
        edges = self.rows.edges(nodes)
        dst = torch.repeat_interleave(edges[0].diff(), output_size=len(edges[1]))
        scale = self.chances.edge_scale(nodes[dst], edges[2])
        batch = self.rows.batch(nodes, num_seeds, edges, edge_scale=scale, degrees=self.graph, **moment)
        batch.weight = self.chances.loss_weight(batch.seeds, int(self.rows.is_seed.sum()))
        return batch


def trial_key(seed: int, number: int) -> int:
    """Return the key of a trial subgraph."""
    return fold(seed, Stream.SAMPLE, 0, number, _TRIAL)


def _uniform(key: int, ids: Ints, lane: int) -> NDArray[np.float64]:
    """Return numbers in [0, 1) of 53 bits."""
    high, low = (draw(key, ids, 2 * lane + half).astype(np.uint64) for half in (0, 1))
    return ((high << np.uint64(32) | low) >> np.uint64(11)).astype(np.float64) * 2.0**-53
