"""What the core of a sampler is asked and what it gives, in its native and its numpy form alike."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from weft.samplers.core.hidden import Hidden
from weft.samplers.core.temporal import Times


@dataclass(frozen=True, eq=False)
class Slots:
    """The edges to draw from, by destination.

    A slot is an edge, in canonical order; where times matter, the slots of a row (and relation) are sorted by
    time, and `edge_map` says which edge each is.
    """

    indptr: Tensor
    """[N + 1] int64."""
    indices: Tensor
    """[E] source of each slot, int32 or int64."""
    edge_type: Tensor | None = None
    """[E] int32 relation, where each relation of a row is drawn from by itself; None: rows as a whole."""
    edge_map: Tensor | None = None
    """[E] int64 edge of each slot; None: slots are edges."""
    edge_time: Tensor | None = None
    """[E] int64 rank of the time of each slot, rising in a row (and relation)."""
    weight: Tensor | None = None
    """[E] float64 weight of each slot, not negative; None: uniform."""
    node_offsets: tuple[int, ...] = (0,)
    """The first node of each type, and the number of nodes: rows are put in the order of types."""
    sorted: bool = False
    """Whether the draws of a row are put in the order of slots, and so of relations."""

    @property
    def num_nodes(self) -> int:
        return self.indptr.numel() - 1

    @property
    def scaled(self) -> bool:
        """Whether a hop says for each edge how many it stands for, since degrees of rows do not tell."""
        return self.weight is not None or self.edge_type is not None or self.edge_time is not None


@dataclass(frozen=True, eq=False)
class Request:
    """One batch: whose neighbourhood, how many edges a row, under which keys."""

    slots: Slots
    seeds: Tensor
    """[n] int64, distinct unless they have times."""
    fanouts: NDArray[np.int64]
    """[hops, relations drawn from by themselves, or 1]; negative: all."""
    keys: NDArray[np.uint64]
    """Of the same shape."""
    seed_time: Tensor | None = None
    """[n] int64: a seed sees the slots whose time has a lower rank, and rows are (seed, node) pairs."""
    seed_group: Tensor | None = None
    """[n] int64: which of the times above a seed has; rows are then (time, node) pairs, which seeds share."""
    seed_key: Tensor | None = None
    """[n] int64: what the draws of a seed's rows are keyed by; None: the seed."""
    hidden: Tensor | None = None
    """[h] int64 rising: slots that are as if they were not there."""
    replace: bool = False
    once: bool = False
    """Whether a node is drawn for only in the hop after it was found; else every row is, in each hop."""
    labor: bool = False
    """Whether draws are keyed by sources, and a row takes the edges whose number is below its chance."""
    iterations: int = 0
    """How often the chances of sources that rows share are raised, in the numpy form alone."""
    top: bool = False
    """Whether of weighted edges the heaviest are taken, not drawn."""
    table: int = 0
    """The table that finds rows: 1 of all nodes, 2 a hash table, 0 whichever suits the size of the graph."""


class Drawing(Protocol):
    """A sampler that draws hop by hop."""

    fanout: NDArray[np.int64]

    @property
    def manner(self) -> dict[str, Any]:
        """How edges are drawn: fields of a `Request`."""


class OwnerDrawing(Drawing, Protocol):
    """A sampler whose draws for a node the node's owner can make: what workers with parts of a graph ask."""

    resample: Literal["epoch", "step"]
    slots: Slots
    weight: Tensor | None
    times: Times | None
    shared: bool
    """Whether seeds of one time share rows."""
    hides: ClassVar[bool]
    scales: ClassVar[bool]
    """Whether each drawn edge says how many it stands for, whatever the slots."""

    @property
    def hops(self) -> int:
        """The number of blocks of a batch."""

    def keys(self, epoch: int, step: int) -> NDArray[np.uint64]:
        """Return the keys of all hops [hops, relations]."""

    def scale_of(self, hop: "Hop") -> Tensor | None:
        """Return how many edges each drawn one stands for; None where degrees of rows tell."""

    def hidden_slots(self, hidden: Hidden | None) -> Tensor | None:
        """Return the slots of hidden edges, rising; None: none."""

    def worker_obstacle(self) -> str:
        """Return why several workers cannot draw like this, or nothing."""


def request_of(
    sampler: Drawing,
    slots: Slots,
    seeds: Tensor,
    keys: NDArray[np.uint64],
    hops: slice = slice(None),
    **more: Any,
) -> Request:
    """Return what a sampler asks of the core for some of its hops."""
    return Request(slots, seeds, sampler.fanout[hops], keys[hops], **sampler.manner, **more)


@dataclass(frozen=True, eq=False)
class Hop:
    """The edges drawn in one hop, by destination row."""

    indptr: Tensor
    """[rows drawn for + 1] int64; these are the last rows there were before the hop."""
    indices: Tensor
    """[e] int32 source rows."""
    edge_ids: Tensor
    """[e] int64 canonical edges."""
    scale: Tensor | None
    """[e] float64, where asked for: how many edges each stands for; of draws by weight, the key of the first
    edge of the row that was not taken."""
    num_rows: int
    """Rows found until the end of the hop."""


@dataclass(frozen=True, eq=False)
class Sample:
    """The hops of a batch, the seeds' own first. Rows are seeds, then those found in each hop, by type."""

    nodes: Tensor
    """[rows] int64."""
    seed_of: Tensor | None
    """[rows] int64: the place of the seed, or of the time, that a row belongs to, where rows are pairs."""
    hops: tuple[Hop, ...]
