"""What a block is: its rows and edges, their ids, the degrees of the whole graph, and what is kept with them.

`weft.graph.message.block.Block` adds what layers do with it.
"""

from collections.abc import Callable, Hashable, Mapping
from copy import copy
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, cast

import torch
from torch import Tensor

from weft import kernels
from weft.errors import GraphError
from weft.graph.remembered import Memory

Rows = Literal["src", "dst"]
T = TypeVar("T")


class DegreeSource(Protocol):
    """Degrees of the whole graph, whatever part of it a block shows."""

    def degree(self, direction: Literal["in", "out"], relation: int | None, weighted: bool) -> Tensor:
        """Return the edges into or out of every node: their number, float32, or summed weight, float64."""


class BlockEdges:
    """Edges from `num_src` source rows to `num_dst` destination rows, by destination.

    What was made with a block goes with it to another device; each class says what of it was not.
    """

    looked_up: ClassVar[frozenset[str]] = frozenset({"degree_source", "_memory", "_transpose", "_clock"})
    """Attributes in which it looks things up, and which outlive it: they belong to the graph, or to a run."""
    derived_from: ClassVar[frozenset[str]] = frozenset({"parent"})
    """Attributes that are other blocks, which have what they hold themselves."""

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        *,
        num_src: int,
        src_ids: Tensor | None = None,
        dst_ids: Tensor | None = None,
        edge_ids: Tensor | None = None,
        edge_type: Tensor | None = None,
        num_relations: int = 1,
        edge_data: Mapping[str, Tensor] | None = None,
        degrees: DegreeSource | None = None,
        type_ranges: Mapping[Rows, Mapping[str, slice]] | None = None,
        transposed: "Callable[[], kernels.Transposed] | None" = None,
        clock: Tensor | None = None,
        parent: "BlockEdges | None" = None,
    ) -> None:
        self.indptr = indptr  # [num_dst + 1] int64
        self.indices = indices  # [E] source row of each edge
        self.num_src = num_src
        self.num_dst = indptr.numel() - 1
        self.num_edges = indices.numel()
        self.edge_type = edge_type  # [E] relation of each edge, None where there is one relation
        self.num_relations = num_relations
        self.parent = parent  # the block this one was derived from, whose clock it shares
        self._clock = clock
        self._src_ids, self._dst_ids = src_ids, dst_ids
        self.picked_edges = edge_ids  # [E] ids of the graph's edges that these are; None: all, in order
        self.edge_data: Mapping[str, Tensor] = {} if edge_data is None else edge_data  # by id of edge
        self.degree_source = degrees  # None: these edges are the whole graph
        self._type_ranges = type_ranges
        self._transpose = transposed
        self._cache: dict[Hashable, Any] = {}
        self._memory = Memory()

    @property
    def device(self) -> torch.device:
        """Where the edges lie."""
        return self.indices.device

    @property
    def clock(self) -> Tensor | None:
        """The (seed, epoch, step) that draws are a function of, see weft.draw; None: every draw is fresh."""
        return self._clock if self.parent is None else self.parent.clock

    @clock.setter
    def clock(self, clock: Tensor | None) -> None:
        if self.parent is None:
            self._clock = clock
        else:
            self.parent.clock = clock

    @property
    def src_ids(self) -> Tensor:
        """The global id of each source row, [num_src] int64."""
        if self._src_ids is None:
            return self.cached("src_ids", lambda: torch.arange(self.num_src, device=self.device))
        return self._src_ids

    @property
    def dst_ids(self) -> Tensor:
        """The global id of each destination row, [num_dst] int64."""
        return self.src_ids[: self.num_dst] if self._dst_ids is None else self._dst_ids

    @property
    def edge_ids(self) -> Tensor:
        """The global id of each edge: its place in the canonical order of the whole graph, [E] int64."""
        if self.picked_edges is None:
            return self.cached("edge_ids", lambda: torch.arange(self.num_edges, device=self.device))
        return self.picked_edges

    @property
    def transposed(self) -> "kernels.Transposed":
        """The edges by source row; built on first use and kept. Backward runs on it."""
        make = self._transpose or (lambda: kernels.transpose_csr(self.indptr, self.indices, self.num_src))
        return self.cached("transposed", make)

    @property
    def edge_dst(self) -> Tensor:
        """The destination row of each edge, [E] int64."""

        def make() -> Tensor:
            return torch.repeat_interleave(self.indptr.diff(), output_size=self.num_edges)

        return self.cached("edge_dst", make)

    def edge_index(self) -> Tensor:
        """Return (2, E) int64 of source row and destination row, in block order: what PyG's layers take."""
        return self.cached("edge_index", lambda: torch.stack([self.indices.long(), self.edge_dst]))

    def edge(self, name: str) -> Tensor:
        """Return the edge weight, features or time under `name`, [E, ...] in block order."""
        if name not in self.edge_data:
            known = ", ".join(self.edge_data) or "none"
            raise GraphError(f"the graph has no edge data {name!r}; it has: {known}")
        if self.picked_edges is None:
            return self.edge_data[name]
        return self.cached(("edge", name), lambda: self.edge_data[name][self.edge_ids])

    def has_edge(self, name: str) -> bool:
        """Return whether `edge(name)` would find something."""
        return name in self.edge_data

    def in_degree(self, rows: Rows = "dst", relation: int | None = None, *, weighted: bool = False) -> Tensor:
        """Return the in-degrees, in the whole graph, of the source or destination rows."""
        return self.row_degree("in", rows, relation, weighted)

    def out_degree(
        self, rows: Rows = "src", relation: int | None = None, *, weighted: bool = False
    ) -> Tensor:
        """Return the out-degrees, in the whole graph, of the source or destination rows."""
        return self.row_degree("out", rows, relation, weighted)

    def edge_in_degree(self, end: Rows = "dst", relation: int | None = None) -> Tensor:
        """Return the in-degree, in the whole graph, of one end of each edge (of a relation, in it), [E]."""
        rows = self.edge_dst if end == "dst" else self.indices.long()
        chosen = rows if relation is None else rows[self.relation_edges(relation)]
        return self.in_degree(end, relation)[chosen]

    def relation_in_degree(self) -> Tensor:
        """Return the in-degree, in the whole graph, of each edge's destination in its own relation, [E]."""
        if self.edge_type is None:
            return self.edge_in_degree("dst")
        degree = torch.empty(self.num_edges, dtype=torch.float64, device=self.edge_type.device)
        for relation in range(self.num_relations):
            edges = (self.edge_type == relation).nonzero().flatten()
            degree[edges] = self.edge_in_degree("dst", relation).double()
        return degree

    def type_ranges(self, rows: Rows = "src") -> dict[str, slice]:
        """Return the range of source or destination rows of each node type."""
        if self._type_ranges is not None:
            return dict(self._type_ranges[rows])
        return {"node": slice(0, self.num_src if rows == "src" else self.num_dst)}

    def typed_rows(self, rows: Rows = "src") -> list[tuple[str, slice]]:
        """Return (node type, range of rows) in the order of rows; a type may have several in a sample."""
        ranges = [(kind, part) for kind, part in self.type_ranges(rows).items() if part.stop > part.start]
        return sorted(ranges, key=lambda item: item[1].start)

    padded: bool = False
    """Whether there is room for more edges at the end, which belong to no row."""
    by_time: bool = False
    """Whether rows see the edges before a time of their own, and degrees go by it."""

    def multiplicity(self) -> Tensor | None:
        """Return how many edges of the whole graph each edge stands for, [E]; None: itself alone."""
        return None

    def need_sums(self, what: str) -> None:
        """Refuse `what`, which is no sum over neighbours, where only sums show what was done to edges."""

    def mean_scale(self, dtype: torch.dtype = torch.float32, relation: int | None = None) -> Tensor:
        """Return 1 / in-degree in the whole graph, 1 without edges, [num_dst]: the scale of a mean."""
        if not dtype.is_floating_point:
            raise GraphError(
                f"a mean is of floating-point rows, got {dtype}: convert them first, rows.float()"
            )
        wide = torch.float64 if dtype == torch.float64 else torch.float32

        def make() -> Tensor:
            return self.in_degree("dst", relation).clamp(min=1).to(wide).reciprocal()

        return self.cached(("mean", wide, relation), make)

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make()` gave the first time for this key; layers keep norms and the like here."""
        if key not in self._cache:
            # What is kept outlives the call that asked first, which may be an evaluation in inference mode.
            with torch.inference_mode(False), torch.no_grad():
                self._cache[key] = make()
        return cast(T, self._cache[key])

    def moved(self, move: Callable[[Any], Any], begun: Callable[[Self], None]) -> Self:
        """Return a copy whose own parts went through `move`; it remembers nothing.

        `begun` is given the copy before its parts are moved, which may name it as their parent.
        """
        for name in self.edge_data:
            self.edge(name)  # picked here: the data of all edges do not travel
        made = copy(self)
        begun(made)
        for name, value in vars(self).items():
            if name not in (*self.looked_up, "edge_data"):
                setattr(made, name, move(value))
        made._memory = Memory()
        return made

    def draw_clock(self) -> Tensor:
        """Return the clock that draws of this block use: its own, or a fresh one from torch's generator."""
        return torch.randint(2**62, (3,), device="cpu") if self.clock is None else self.clock

    def __repr__(self) -> str:
        counts = f"num_src={self.num_src:,}, num_dst={self.num_dst:,}, num_edges={self.num_edges:,}"
        return f"{type(self).__name__}({counts})"

    # Underneath

    def edge_factors(
        self, weight: Tensor | None, src_scale: Tensor | None, dst_scale: Tensor | None
    ) -> Tensor | None:
        src = None if src_scale is None else src_scale[self.indices.long()]
        dst = None if dst_scale is None else dst_scale[self.edge_dst]
        factors = [factor for factor in (weight, src, dst) if factor is not None]
        return torch.stack(factors).prod(0) if factors else None

    def transposed_for(self, *inputs: Tensor | None) -> "kernels.Transposed | None":
        """Give backward the transposed edges, and build them only where there will be a backward."""
        wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
        return self.transposed if wanted else None

    def row_degree(
        self, direction: Literal["in", "out"], rows: Rows, relation: int | None, weighted: bool
    ) -> Tensor:
        def make() -> Tensor:
            degrees = self.degree_source or OwnDegrees(self)
            degree = degrees.degree(direction, relation, weighted)
            ids = self._src_ids if rows == "src" or self._dst_ids is None else self._dst_ids
            if ids is not None and not isinstance(degrees, OwnDegrees):
                degree = degree[ids]
            return degree[: self.num_dst if rows == "dst" else self.num_src]

        return self.cached((direction, rows, relation, weighted), make)

    def counted_degree(self, direction: str, relation: int | None, weighted: bool) -> Tensor:
        """Count the block's own edges: right for a block that was made by hand and is the whole graph."""
        ends = self.edge_dst if direction == "in" else self.indices.long()
        one = torch.ones(1, dtype=torch.float64, device=ends.device).expand(len(ends))
        counted = self.edge("weight").double().to(ends.device) if weighted else one
        if relation is not None and self.edge_type is not None:
            counted = counted * (self.edge_type == relation)
        num_nodes = max(self.num_src, self.num_dst)
        degree = torch.bincount(ends, counted, minlength=num_nodes)
        return degree if weighted else degree.float()

    def relation_edges(self, relation: int) -> Tensor | slice:
        kinds = self.edge_type
        if kinds is None:
            return slice(None)
        return self.cached(("edges of", relation), lambda: (kinds == relation).nonzero().flatten())


class OwnDegrees:
    """Degrees of a block made by hand, which is its own whole graph."""

    def __init__(self, block: BlockEdges) -> None:
        self.block = block

    def degree(self, direction: Literal["in", "out"], relation: int | None, weighted: bool) -> Tensor:
        return self.block.counted_degree(direction, relation, weighted)
