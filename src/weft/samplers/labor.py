"""LABOR: layer-neighbour sampling, Balin and Çatalyürek, 2023. Fewer distinct nodes at equal variance.

Every source has one random number for all rows it could be drawn by, so rows that share neighbours draw the
same ones. A row takes the edges whose source's number lies below their chance; chances are such that the
variance of its mean is that of `fanout` uniform draws. See `weft.samplers.core.chances`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.errors import InputError
from weft.graph.message.block import Block
from weft.graph.views import EdgeView
from weft.samplers.base import Batch, Resample, Sampler, as_seeds, samplers
from weft.samplers.core.block import block_of
from weft.samplers.core.hidden import Hidden
from weft.samplers.core.request import Hop, Slots, request_of
from weft.samplers.core.temporal import Times
from weft.samplers.neighbor import Fanout, check_fanouts, fanouts_of, run


@samplers.add("labor")
class LaborSampler(Sampler):
    """Draw about `fanout[i]` incoming edges of each row in hop i, from as few distinct sources as it can.

    Fanouts count as those of a `NeighborSampler`: for each relation by itself where node types are named.
    `iterations` raises the chance of sources that many rows could share (LABOR-i of the paper): each makes
    batches smaller and the sampler slower. `shared_hops` uses the same random numbers in every hop. Means
    are normalised over the drawn edges (Hájek's estimator), and a row that would draw none draws the edge
    nearest to it; in the paper it draws nothing. So the mean of ones is 1, and means and sums are unbiased;
    with `iterations` they lean towards shared sources, the less the larger the fanout. Numbers change each
    step unless `resample="epoch"`: held for an epoch they would leave out the same nodes all the time.
    """

    on_workers: ClassVar[bool] = True
    scales: ClassVar[bool] = True
    weight: Tensor | None = None
    """Draws are by no weight, and not by time."""
    times: Times | None = None
    shared: bool = False
    graph: EdgeView

    def __init__(
        self,
        graph: EdgeView,
        fanout: Fanout = (15, 10, 5),
        *,
        seed: int = 0,
        iterations: int = 0,
        shared_hops: bool = False,
        resample: Resample = "step",
    ) -> None:
        super().__init__(graph, seed=seed, resample=resample)
        check_fanouts(fanout)
        self.by_relation = not graph.is_plain or any(isinstance(hop, Mapping) for hop in fanout)
        self.fanout = fanouts_of(graph, fanout, self.by_relation)
        if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 0:
            raise InputError(f"iterations must be a whole number of at least 0, got {iterations!r}")
        self.iterations, self.shared_hops = iterations, shared_hops
        kinds = graph.edge_type if self.by_relation else None
        self.slots = Slots(
            graph.indptr,
            graph.indices,
            edge_type=None if kinds is None else kinds.to(torch.int32).contiguous(),
            node_offsets=tuple(graph.node_offsets),
        )

    @property
    def hops(self) -> int:
        """The number of blocks of a batch."""
        return len(self.fanout)

    def worker_obstacle(self) -> str:
        """Return why several workers cannot draw like this, or nothing."""
        message = (
            "iterations: they need all rows of a hop, which several workers hold; leave them out, or use "
        )
        return f"{message}one process" if self.iterations else ""

    def sample(self, seeds: Any, epoch: int = 0, step: int = 0) -> Batch:
        """Return the batch of these nodes."""
        seed_ids = as_seeds(self.graph, seeds)
        drawn = run(request_of(self, self.slots, seed_ids, self.keys(epoch, step)))
        blocks = [self._block(drawn.nodes, hop) for hop in reversed(drawn.hops)]
        return Batch(self.graph, blocks, drawn.nodes, num_seeds=len(seed_ids), epoch=epoch, step=step)

    def keys(self, epoch: int, step: int) -> NDArray[np.uint64]:
        """Return the keys of all hops [hops, relations]: a source has one number for all relations."""
        # One key for all relations of a hop: a source that two relations could draw is drawn by both or by
        # neither, and that is what makes batches small.
        keys = [self.key(epoch, step, 0 if self.shared_hops else hop) for hop in range(self.hops)]
        return np.repeat(np.array(keys, dtype=np.uint64)[:, None], self.fanout.shape[1], axis=1)

    @property
    def manner(self) -> dict[str, Any]:
        """How edges are drawn: fields of a `Request`."""
        return {"labor": True, "iterations": self.iterations}

    def scale_of(self, hop: Hop) -> Tensor:
        """Return how many edges each drawn one stands for."""
        assert hop.scale is not None, "edges of a row differ in what they stand for"
        return hop.scale.float()

    def hidden_slots(self, hidden: Hidden | None) -> None:
        """Refuse hidden edges: a source has one number for all rows, whoever sees it."""
        if hidden is not None:
            raise InputError("hidden: draws of 'labor' see all edges; use the sampler 'neighbor'")

    def _block(self, nodes: Tensor, hop: Hop) -> Block:
        data = {"nodes": nodes[: hop.num_rows], "edge_ids": hop.edge_ids}
        return block_of(self.graph, hop.indptr, hop.indices, **data, edge_scale=self.scale_of(hop))
