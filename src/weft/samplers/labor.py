"""LABOR: layer-neighbour sampling, Balin and Çatalyürek, 2023. Fewer distinct nodes at equal variance.

Every source has one random number for all rows it could be drawn by, so rows that share neighbours draw the
same ones. A row takes the edges whose source's number lies below their chance; chances are such that the
variance of its mean is that of `fanout` uniform draws.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.draw import uniform
from weft.errors import InputError
from weft.graph.block import Block
from weft.graph.graph import Graph
from weft.kernels import native as kernels
from weft.samplers import device, native
from weft.samplers.base import Batch, Resample, Sampler, as_seeds, samplers
from weft.samplers.block import block_of
from weft.samplers.neighbor import Fanout, fanouts_of
from weft.samplers.reference import Ints, checked_seeds, find_rows, ranges
from weft.samplers.request import Hop, Request, Sample, Slots

Floats = NDArray[np.float64]
_ROUNDS = 20  # of solving for the scale of a row's chances; a few suffice


@samplers.add("labor")
class LaborSampler(Sampler):
    """Draw about `fanout[i]` incoming edges of each row in hop i, from as few distinct sources as it can.

    `iterations` raises the chance of sources that many rows could share (LABOR-i of the paper): each makes
    batches smaller and the sampler slower. `shared_hops` uses the same random numbers in every hop. Means
    are normalised over the drawn edges (Hájek's estimator). Numbers change each step unless
    `resample="epoch"`: held for an epoch they would leave out the same nodes all the time.
    """

    def __init__(
        self,
        graph: Graph,
        fanout: Fanout = (15, 10, 5),
        *,
        seed: int = 0,
        iterations: int = 0,
        shared_hops: bool = False,
        resample: Resample = "step",
    ) -> None:
        super().__init__(graph, seed=seed, resample=resample)
        device.refuse(graph, type(self).__name__)
        self.fanout = fanouts_of(graph, fanout, by_relation=False)[:, 0]
        if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 0:
            raise InputError(f"iterations must be a whole number of at least 0, got {iterations!r}")
        self.iterations, self.shared_hops = iterations, shared_hops
        self.slots = Slots(graph.indptr, graph.indices, node_offsets=tuple(graph.node_offsets))

    def sample(self, seeds: Any, epoch: int = 0, step: int = 0) -> Batch:
        """Return the batch of these nodes."""
        given = as_seeds(self.graph, seeds)
        keys = [self.key(epoch, step, 0 if self.shared_hops else hop) for hop in range(len(self.fanout))]
        core = kernels.library()
        if core is None or self.iterations:
            found = self._drawn(given, keys)
        else:
            every = np.array(keys, dtype=np.uint64)[:, None]
            found = native.sample(core, Request(self.slots, given, self.fanout[:, None], every, labor=True))
        blocks = [self._block(found.nodes, hop) for hop in reversed(found.hops)]
        return Batch(self.graph, blocks, found.nodes, num_seeds=len(given), epoch=epoch, step=step)

    def _drawn(self, seeds: Tensor, keys: list[int]) -> Sample:
        """Return what is drawn: the definition of what the native core does, with iterations as well."""
        rows, hops = checked_seeds(seeds, self.graph.num_nodes), []
        for fanout, key in zip(self.fanout.tolist(), keys):
            rows, hop = self._hop(rows, key, fanout)
            hops.append(hop)
        return Sample(torch.from_numpy(rows), None, tuple(hops))

    def _hop(self, rows: Ints, key: int, fanout: int) -> tuple[Ints, Hop]:
        indptr = self.graph.indptr.numpy()
        degree = indptr[rows + 1] - indptr[rows]
        slot, row = ranges(indptr[rows], degree), np.repeat(np.arange(len(rows)), degree)
        src = self.graph.indices.numpy()[slot].astype(np.int64)
        chance = chances(src, row, degree, fanout, self.iterations)
        taken = uniform(key, src) < chance
        slot, row, chance = slot[taken], row[taken], chance[taken]
        found, local = find_rows(rows, src[taken], self.slots.node_offsets)
        counts = np.bincount(row, minlength=len(rows))
        total = np.bincount(row, 1.0 / chance, minlength=len(rows))
        hop = Hop(
            torch.from_numpy(np.concatenate([[0], np.cumsum(counts)])),
            torch.from_numpy(local.astype(np.int32)),
            torch.from_numpy(slot),
            torch.from_numpy(degree[row] / (chance * total[row])),
            len(found),
        )
        return found, hop

    def _block(self, nodes: Tensor, hop: Hop) -> Block:
        scale = hop.scale
        assert scale is not None, "edges of a row differ in what they stand for"
        held = {"nodes": nodes[: hop.num_rows], "edge_ids": hop.edge_ids}
        return block_of(self.graph, hop.indptr, hop.indices, **held, edge_scale=scale.float())


def chances(src: Ints, row: Ints, degree: Ints, fanout: int, iterations: int) -> Floats:
    """Return the chance of each edge; with 0 iterations fanout / degree, at most 1."""
    if fanout < 0:
        return np.ones(len(src))
    sources, place = np.unique(src, return_inverse=True)
    favour = np.ones(len(sources))
    scale = _scales(favour[place], row, degree, fanout)
    for _ in range(iterations):
        largest = np.zeros(len(sources))
        np.maximum.at(largest, place, scale[row])
        favour = favour * largest
        scale = _scales(favour[place], row, degree, fanout)
    return np.minimum(1.0, scale[row] * favour[place])


def _scales(favour: Floats, row: Ints, degree: Ints, fanout: int) -> Floats:
    """Return c of each row, such that Σ 1 / min(1, c · favour) = degree² / fanout, or all edges are in."""
    if fanout == 0:
        return np.zeros(len(degree))
    few, least = degree <= fanout, np.full(len(degree), np.inf)
    np.minimum.at(least, row, favour)
    target = np.where(few, 1.0, degree**2 / fanout)
    scale = np.zeros(len(degree))
    for _ in range(_ROUNDS):
        sure = scale[row] * favour >= 1.0
        certain = np.bincount(row[sure], minlength=len(degree))
        rest = np.bincount(row[~sure], 1.0 / favour[~sure], minlength=len(degree))
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(few, 1.0 / least, rest / (target - certain))
        found = np.maximum(scale, found)  # it rises to its value; rounding must not turn it back
        if np.array_equal(found, scale):
            break
        scale = found
    return scale
