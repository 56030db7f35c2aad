"""Sampled neighbourhoods: GraphSAGE's mini-batches, hop by hop from the seeds outwards."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.errors import GraphError, InputError
from weft.graph.build import EdgeType
from weft.graph.message.block import Block
from weft.graph.views import EdgeView
from weft.kernels import native as core
from weft.samplers.base import Batch, Resample, Sampler, as_seeds, samplers
from weft.samplers.core import native_draws, reference
from weft.samplers.core.block import block_of
from weft.samplers.core.hidden import Hidden, HiddenPairs
from weft.samplers.core.request import Hop, Request, Sample, Slots, request_of
from weft.samplers.core.temporal import Times, refuse_times, seed_times
from weft.samplers.gpu import device

MOST = 2**31 - 1
"""The largest fanout: rows of a batch are counted in 31 bits."""
IN_DEGREE = "in_degree"
"""The weight of an edge that is the in-degree of its source."""
Fanout = Sequence[int | Mapping[EdgeType, int]]


@samplers.add("neighbor")
class NeighborSampler(Sampler):
    """Draw up to `fanout[i]` incoming edges of each row in hop i; -1 takes all.

    Where node types are named, a fanout counts for each relation by itself, as in PyG, and may be given for
    each: `fanout=[{("author", "writes", "paper"): 10, …}, …]`. Draws are uniform without replacement, with
    it (`replace`), or by edge weight (`weight` names edge data, or is one value per edge in canonical order;
    "in_degree" is that of an edge's source), where an edge is drawn the sooner the heavier it is and then
    counts by its chance. `pick="top"` takes the heaviest instead, the same in each epoch, and its mean is
    theirs. Edges of weight 0 are not taken. (Weights, in-degrees and the heaviest are AliGraph's samplers of
    neighbours.) `expand="hop"` draws
    for every row in each hop; "once" only for those found in the hop before, which is PyG's way. `temporal`
    takes no edge later than its seed's time: rows are then (seed, node) pairs. With `shared`, where all
    edges are taken and nothing is drawn, they are (time, node) pairs, fewer of them and the same numbers.

    >>> from weft import Graph
    >>> graph = Graph.from_edges([[1, 2, 3, 0], [0, 0, 0, 1]])
    >>> batch = NeighborSampler(graph, fanout=[2, 2]).sample([0])
    >>> batch.blocks[-1], batch.blocks[-1].in_degree().tolist()
    (SampledBlock(num_src=3, num_dst=1, num_edges=2), [3.0])
    """

    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    on_workers: ClassVar[bool] = True
    by_time: ClassVar[bool] = True
    hides: ClassVar[bool] = True
    scales: ClassVar[bool] = False
    graph: EdgeView

    def __init__(
        self,
        graph: EdgeView,
        fanout: Fanout = (15, 10, 5),
        *,
        seed: int = 0,
        replace: bool = False,
        weight: str | Tensor | None = None,
        pick: Literal["draw", "top"] = "draw",
        resample: Resample = "epoch",
        expand: Literal["hop", "once"] = "hop",
        temporal: bool = False,
        shared: bool = False,
    ) -> None:
        super().__init__(graph, seed=seed, resample=resample)
        if expand not in ("hop", "once"):
            raise InputError(f"expand must be 'hop' or 'once', got {expand!r}")
        if replace and weight is not None:
            raise InputError("weighted draws are without replacement; leave out replace or weight")
        if pick not in ("draw", "top") or (pick == "top" and weight is None):
            raise InputError(f"pick must be 'draw', or 'top' where edges have a weight, got {pick!r}")
        self.expand, self.replace, self.pick = expand, replace, pick
        check_fanouts(fanout)
        self.by_relation = not graph.is_plain or any(isinstance(hop, Mapping) for hop in fanout)
        self.fanout = fanouts_of(graph, fanout, self.by_relation)
        self.weight = None if weight is None else weights_of(graph, weight)
        self.times = Times(graph, by_relation=self.by_relation) if temporal else None
        drawn = replace or weight is not None or bool((self.fanout >= 0).any())
        self.shared = shared and temporal and not drawn
        """Whether seeds of one time share rows."""
        self.slots = self._slots()
        self._kept_keys: tuple[tuple[int, int, bool], NDArray[np.uint64]] | None = None

    @property
    def hops(self) -> int:
        """The number of blocks of a batch."""
        return len(self.fanout)

    @property
    def plain(self) -> bool:
        special = self.by_relation or self.weight is not None or self.times is not None
        return not special and self.graph.is_plain and self.graph.edge_type is None

    def gpu_obstacle(self) -> str:
        """Return why a GPU cannot draw from these edges, or nothing."""
        return super().gpu_obstacle() or device.obstacle(self.slots)

    def worker_obstacle(self) -> str:
        """Return nothing: the owner of a node draws for it."""
        return ""

    def sample(
        self,
        seeds: Any,
        epoch: int = 0,
        step: int = 0,
        *,
        times: Any = None,
        hidden: Hidden | HiddenPairs | Tensor | None = None,
    ) -> Batch:
        """Return the batch of these nodes; a temporal one has `times` [n], by default the node data's `time`.

        `hidden` are edges that the batch must not see, by place in canonical order, or all between some ends:
        it is then the batch of a graph without them, in its draws and in all degrees.
        """
        if isinstance(hidden, HiddenPairs):
            hidden = Hidden.between(self.graph, *hidden)
        elif hidden is not None and not isinstance(hidden, Hidden):
            hidden = Hidden(self.graph, hidden)
        once = self.expand == "once"
        return self._sample(as_seeds(self.graph, seeds), epoch, step, times, hidden, once=once)

    def _sample(
        self, seeds: Tensor, epoch: int, step: int, times: Any, hidden: Hidden | None, *, once: bool
    ) -> Batch:
        ranks, group = self._ranks(seeds, times), None
        if self.shared and ranks is not None and _distinct(seeds, ranks):
            ranks, group = torch.unique(ranks, return_inverse=True)
        request = request_of(
            self,
            self.slots,
            seeds,
            self.keys(epoch, step, once=once),
            seed_time=ranks,
            seed_group=group,
            hidden=self.hidden_slots(hidden),
            once=once,
        )
        drawn = run(request)
        blocks, sizes = self._blocks(request, drawn, hidden)
        return Batch(
            self.graph,
            blocks,
            drawn.nodes,
            num_seeds=seeds.numel(),
            epoch=epoch,
            step=step,
            seed_of=drawn.seed_of if group is None else None,
            once=lambda: self._sample(seeds, epoch, step, times, hidden, once=True),
            hop_sizes=sizes if once else None,
        )

    @property
    def manner(self) -> dict[str, Any]:
        """How edges are drawn: fields of a `Request`."""
        return {"replace": self.replace, "top": self.pick == "top"}

    def keys(self, epoch: int, step: int, *, once: bool = False) -> NDArray[np.uint64]:
        """Return the keys of all hops [hops, relations]; one for all hops where a node is drawn for once."""
        asked = (epoch, step if self.resample == "step" else 0, once)
        kept = self._kept_keys  # read once: threads ask at the same time
        if kept is None or kept[0] != asked:
            kept = self._kept_keys = (asked, self._keys(epoch, step, once))
        return kept[1]

    def _keys(self, epoch: int, step: int, once: bool) -> NDArray[np.uint64]:
        hops, kinds = self.fanout.shape
        layers = [[(0 if once else hop) * kinds + kind for kind in range(kinds)] for hop in range(hops)]
        keys = [[self.key(epoch, step, layer) for layer in row] for row in layers]
        return np.array(keys, dtype=np.uint64).reshape(hops, kinds)

    def _slots(self) -> Slots:
        graph, times = self.graph, self.times
        kinds = graph.edge_type
        if kinds is not None and self.by_relation:
            kinds = kinds.to(torch.int32).contiguous()
        order = None if times is None else times.order
        slots = Slots(
            graph.indptr,
            graph.indices if order is None else graph.indices[order],
            edge_type=kinds if self.by_relation else None,
            edge_map=order,
            edge_time=None if times is None else times.rank,
            weight=self.weight if order is None or self.weight is None else self.weight[order],
            node_offsets=tuple(graph.node_offsets),
            sorted=kinds is not None and not self.by_relation and times is None,
        )
        if graph.device.type != "cpu":
            device.check(slots)
        return slots

    def _ranks(self, seeds: Tensor, times: Any) -> Tensor | None:
        if self.times is None:
            refuse_times(times)
            return None
        return self.times.ranks(seeds, seed_times(self.graph, seeds) if times is None else times)

    def moments(self, times: Tensor) -> Tensor:
        """Return those of the last edges before, where seeds share rows: else the given."""
        return self.times.moments(times) if self.shared and self.times is not None else times

    def hidden_slots(self, hidden: Hidden | None) -> Tensor | None:
        """Return the slots of hidden edges, rising, as the core is told of them; None: none."""
        if hidden is None or not hidden.edges.numel():
            return None
        return hidden.edges if self.times is None else self.times.slots_of(hidden.edges)

    def _blocks(
        self, request: Request, drawn: Sample, hidden: Hidden | None
    ) -> tuple[list[Block], tuple[list[int], list[int]]]:
        """Return the blocks in the order a model takes them, and the nodes and edges new in each hop."""
        rows = [request.seeds.numel(), *[hop.num_rows for hop in drawn.hops]]
        new = [after - before for before, after in pairwise(rows)]
        sizes = [rows[0], *new], [hop.indices.numel() for hop in drawn.hops]
        hops = _prefixes(drawn.hops) if request.once else drawn.hops
        return [self._block(request, drawn, hop, hidden) for hop in reversed(hops)], sizes

    def _block(self, request: Request, drawn: Sample, hop: Hop, hidden: Hidden | None) -> Block:
        graph, times, ranks = self.graph, self.times, request.seed_time
        nodes = drawn.nodes[: hop.num_rows]
        seen = None
        if times is not None and ranks is not None and drawn.seed_of is not None:
            row_rank = ranks[drawn.seed_of[: hop.num_rows]]

            def seen(relation: int | None) -> Tensor:
                return times.degree(nodes, row_rank, relation, request.hidden)

        data: dict[str, Any] = {"nodes": nodes, "edge_ids": hop.edge_ids}
        data |= {} if hidden is None else {"degrees": hidden}
        scale = self.scale_of(hop)
        return block_of(graph, hop.indptr, hop.indices, **data, edge_scale=scale, seen_degree=seen)

    def scale_of(self, hop: Hop) -> Tensor | None:
        """Return how many edges each drawn one stands for; None where degrees of rows tell."""
        if hop.scale is None:
            return None
        if self.weight is None or self.pick == "top":
            return hop.scale.float()
        # Given the threshold, the draws of a row are independent: an edge is in with chance 1 − exp(−w · t).
        # expm1, since chances of light edges are far below what 1 − exp keeps of them.
        return torch.expm1(-self.weight[hop.edge_ids] * hop.scale).neg_().reciprocal_().float()


def _distinct(seeds: Tensor, ranks: Tensor) -> bool:
    """Return whether no node is asked for at two times by which it sees the same."""
    keys = torch.stack([seeds, ranks], 1).numpy()
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    return not bool((keys[order][1:] == keys[order][:-1]).all(1).any())


def run(request: Request) -> Sample:
    """Return the sample of a request: where the edges lie, on the CPU by the native core if there is one."""
    if not request.slots.indptr.is_cpu:
        return device.sample(request)
    library = core.library()
    if library is None or request.iterations:
        return reference.sample(request)
    return native_draws.sample(library, request)


def check_fanouts(fanout: Any) -> None:
    """Refuse what is no list of fanouts."""
    if not isinstance(fanout, Sequence) or isinstance(fanout, str) or not fanout:
        raise InputError(f"expected a fanout for each hop, such as [15, 10, 5], got {fanout!r}")


def fanouts_of(graph: EdgeView, fanout: Any, by_relation: bool) -> NDArray[np.int64]:
    """Return the fanout of each hop and relation, [hops, relations, or 1 for whole rows]."""
    check_fanouts(fanout)
    rows = []
    for hop in fanout:
        if isinstance(hop, Mapping):
            wrong = [kind for kind in hop if kind not in graph.edge_types]
            missing = [kind for kind in graph.edge_types if kind not in hop]
            if wrong or missing:
                what = f"no relation {wrong[0]}" if wrong else f"no fanout for {missing[0]}; 0 leaves it out"
                raise InputError(f"fanout: {what}; the graph has: {', '.join(map(str, graph.edge_types))}")
            rows.append([hop[kind] for kind in graph.edge_types])
        else:
            rows.append([hop] * (graph.num_relations if by_relation else 1))
    for count in (count for row in rows for count in row):
        if isinstance(count, bool) or not isinstance(count, int) or not -1 <= count <= MOST:
            raise InputError(f"a fanout is a number of edges, or -1 for all, got {count!r}")
    return np.array(rows, dtype=np.int64)


def weights_of(graph: EdgeView, weight: str | Tensor) -> Tensor:
    """Return one weight per edge, [E] float64 in canonical order, none negative."""
    if isinstance(weight, str):
        if weight == IN_DEGREE and weight not in graph.edge_data:
            return graph.in_degree().cpu()[graph.indices.cpu().long()].double()
        if weight not in graph.edge_data:
            known = ", ".join(graph.edge_data) or "none"
            raise GraphError(f"weight: the graph has no edge data {weight!r}; it has: {known}")
        weight = graph.edge_data[weight]
    values = weight.to("cpu", torch.float64).contiguous()
    if values.shape != (graph.num_edges,):
        raise GraphError(f"weight: expected {graph.num_edges:,} values, got shape {list(values.shape)}")
    if not bool((torch.isfinite(values) & (values >= 0)).all()):
        raise GraphError("weight: expected finite numbers of at least 0")
    return values


def _prefixes(hops: Sequence[Hop]) -> list[Hop]:
    """Return for each hop the edges of it and of all before, which go to the first rows in order: views."""
    ends = list(accumulate(hop.indices.numel() for hop in hops))
    rows = list(accumulate(hop.indptr.numel() - 1 for hop in hops))
    shifted = [hop.indptr[1:] + end for hop, end in zip(hops[1:], ends)]
    indptr = torch.cat([hops[0].indptr, *shifted])
    indices, edge_ids = (torch.cat([getattr(hop, name) for hop in hops]) for name in ("indices", "edge_ids"))
    scales = [hop.scale for hop in hops if hop.scale is not None]
    scale = torch.cat(scales) if scales else None
    return [
        Hop(
            indptr[: row + 1], indices[:end], edge_ids[:end], None if scale is None else scale[:end], num_rows
        )
        for row, end, num_rows in zip(rows, ends, (hop.num_rows for hop in hops))
    ]
