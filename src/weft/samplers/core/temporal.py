"""Edges by time: what a seed may see of a graph whose edges have times."""

from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from weft.errors import GraphError, InputError
from weft.graph.degrees import edge_destinations
from weft.graph.views import EdgeView, GraphView


class Times:
    """The edges of each row sorted by time, so that those a seed may see come first.

    Times are compared by rank, whatever type they have: a seed of time t has the rank of the first time later
    than t, and sees the edges of lower rank.
    """

    def __init__(self, graph: EdgeView, *, by_relation: bool) -> None:
        if "time" not in graph.edge_data:
            raise GraphError("temporal sampling needs edge_time: the time of each edge")
        time = graph.edge_data["time"].cpu().numpy()
        if time.ndim != 1 or not np.isfinite(time).all():
            raise GraphError(f"expected one finite time an edge, got shape {list(time.shape)}")
        self.values, rank = np.unique(time, return_inverse=True)  # rising
        kinds = graph.edge_type if by_relation else None
        segment = edge_destinations(graph.indptr).numpy()
        if kinds is not None:
            segment = segment * graph.num_relations + kinds.numpy()
        order = np.lexsort((rank, segment))
        self.order = torch.from_numpy(order)  # [E] edge of each slot
        self.rank = torch.from_numpy(rank[order].astype(np.int64))  # [E] of each slot
        self._relations = graph.num_relations if by_relation and kinds is not None else 1
        # One rising number a slot: how many slots of a row are early is then the difference of two look-ups.
        self._place = segment[order] * (len(self.values) + 1) + rank[order]

    def ranks(self, seeds: Tensor, times: Any) -> Tensor:
        """Return the rank of the time of each seed; (seed, time) pairs are distinct."""
        moments = torch.as_tensor(times).cpu()
        check_times(seeds, moments)
        return self.rank_of(moments.numpy())

    def rank_of(self, times: Any) -> Tensor:
        """Return the rank of the first time later than each of these, [n] int64."""
        return torch.from_numpy(
            np.searchsorted(self.values, np.asarray(times), side="right").astype(np.int64)
        )

    def moments(self, times: Tensor) -> Tensor:
        """Return for each time the first one by which a seed sees as much: that of the last edge before."""
        if not len(self.values):
            return torch.zeros_like(times)
        first = self.values[0]
        earlier = np.nextafter(first, -np.inf) if self.values.dtype.kind == "f" else first - 1
        return torch.from_numpy(np.append(earlier, self.values)[self.rank_of(times.numpy()).numpy()])

    @property
    def columns(self) -> list[int | None]:
        """What `degree` knows: all relations together, and each by itself where fanouts are by relation."""
        return [None, *range(self._relations)] if self._relations > 1 else [None]

    @cached_property
    def _slots(self) -> Tensor:
        """[E] slot of each edge."""
        slots = torch.empty_like(self.order)
        slots[self.order] = torch.arange(len(slots))
        return slots

    def slots_of(self, edges: Tensor) -> Tensor:
        """Return the slots of some edges, rising."""
        return self._slots[edges].sort().values

    def degree(
        self, nodes: Tensor, ranks: Tensor, relation: int | None, hidden: Tensor | None = None
    ) -> Tensor:
        """Return the edges into each node, or those of a relation, that are of a lower rank, float32.

        `hidden` are slots, rising, that do not count.
        """
        if relation is not None and self._relations == 1:
            if relation == 0:
                return self.degree(nodes, ranks, None, hidden)
            raise GraphError("degrees by relation need a fanout by relation where edges have times")
        kinds = range(self._relations) if relation is None else [relation]
        total = np.zeros(nodes.numel(), dtype=np.int64)
        left_out = self._place[:0] if hidden is None else self._place[hidden.numpy()]
        for kind in kinds:
            first = (nodes.numpy() * self._relations + kind) * (len(self.values) + 1)
            last = first + ranks.numpy()
            total += np.searchsorted(self._place, last) - np.searchsorted(self._place, first)
            total -= np.searchsorted(left_out, last) - np.searchsorted(left_out, first)
        return torch.from_numpy(total).float()


def refuse_times(times: Any) -> None:
    """Refuse times of seeds that a sampler does not look at."""
    if times is not None:
        raise InputError("times are given but the sampler is not temporal; make it with temporal=True")


def check_times(seeds: Tensor, times: Tensor) -> None:
    """Refuse other than one finite time a seed, and a seed that is there twice at one time."""
    values = times.numpy()
    if values.shape != tuple(seeds.shape):
        raise GraphError(f"expected {seeds.numel()} times, one a seed, got shape {list(values.shape)}")
    check_finite(seeds, times)
    pairs, counts = np.unique(np.stack([seeds.numpy(), values]), axis=1, return_counts=True)
    if (counts > 1).any():
        seed, time = pairs[:, counts > 1][:, 0]
        raise GraphError(f"seed {int(seed)} at time {time} is there twice: a batch has each once")


def check_finite(seeds: Tensor, times: Tensor) -> None:
    """Refuse times that are no finite numbers: such a seed would see all edges."""
    wrong = ~torch.isfinite(times)
    if bool(wrong.any()):
        raise GraphError(f"the time of seed {int(seeds[wrong][0])} is not a finite number")


def seed_times(graph: GraphView, seeds: Tensor) -> Tensor:
    """Return the time that the node data have for each seed, [n]."""
    kind, rows = graph.target_type, graph.target_rows
    time = graph.node_data[kind].get("time")
    if time is None:
        raise GraphError(
            "temporal sampling needs the time of each seed: sample(seeds, times=…), or node data 'time' of "
            f"{kind!r}"
        )
    places = seeds - rows.start
    if places.numel() and (int(places.min()) < 0 or int(places.max()) >= rows.stop - rows.start):
        raise GraphError(f"not all seeds are of type {kind!r}, the one whose time is known: give times")
    return cast(Tensor, time).cpu()[places]
