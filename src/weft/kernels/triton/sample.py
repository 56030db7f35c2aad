"""Neighbour sampling: the draws of weft.draw, and rows found in order of first appearance.

How many rows and edges a hop has is known on the GPU alone. Kernels are launched for as many as there could
be and look at the counts there; the host waits once, at the end, for the counts of all hops. A table of all
nodes finds rows: of the numbers that edges claim a node with the smallest stays, whoever comes first. So the
launches of a call are those of any other with as many seeds, and are captured and replayed as one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from weft.draw import signed
from weft.errors import InputError
from weft.kernels import gpu
from weft.kernels.triton.draw import draw, row_key
from weft.kernels.triton.plan import power

FREE = 2**31 - 1
"""What the table holds for a node that is no row."""
_BLOCK = 512


class DrawnEdges(NamedTuple):
    """The edges drawn in one hop, by destination row."""

    indptr: Tensor
    """[rows drawn for + 1] int64"""
    indices: Tensor
    """[e] int32 source rows"""
    edges: Tensor
    """[e] int64 places in the CSR"""
    num_rows: int
    """rows found until the end of the hop"""


@triton.jit(do_not_specialize=["hop"])
def _count_kernel(
    indptr,
    nodes,
    sizes,
    out,
    hop,
    fanout,
    ALL: tl.constexpr,
    ONCE: tl.constexpr,
    REPLACE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store how many edges each row gets; 0 behind the last.

    tensor      shape               holds
    indptr      [num_nodes + 1]     of the graph
    nodes       [rows]              the node of each row so far, seeds first
    sizes       [hops + 1]          rows there are before each hop
    out         [rows, rounded up]  out: the edges of each row
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    last = tl.load(sizes + hop)
    first = last * 0
    if ONCE:
        first = tl.load(sizes + hop - 1, mask=hop > 0, other=0)
    live = at < last - first
    node = tl.load(nodes + first + at, mask=live, other=0)
    start = tl.load(indptr + node, mask=live, other=0)
    degree = tl.load(indptr + node + 1, mask=live, other=0) - start
    if ALL:
        count = degree
    else:
        if REPLACE:
            count = tl.where(degree > 0, fanout, 0).to(tl.int64)
        else:
            count = tl.minimum(degree, fanout)
    tl.store(out + at, count)


@triton.jit(do_not_specialize=["hop"])
def _draw_kernel(
    indptr,
    indices,
    nodes,
    sizes,
    offsets,
    edges,
    sources,
    table,
    num_rows,
    keys,
    hop,
    fanout,
    ONCE: tl.constexpr,
    REPLACE: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Draw the edges of some rows by Floyd's algorithm, and claim their sources in the table.

    tensor      shape               holds
    indptr, indices                 the graph's CSR, by node
    nodes, sizes                    as in `_count_kernel`
    offsets     [rows + 1]          where the edges of each row begin
    edges       [bound]             out: the place of each edge in the CSR, int64
    sources     [bound]             out: its source node, int32
    table       [num_nodes]         least number that claims a node: a row's, or rows so far plus an edge's
    keys        [hops]              of the draws
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    last = tl.load(sizes + hop)
    first = last * 0
    if ONCE:
        first = tl.load(sizes + hop - 1, mask=hop > 0, other=0)
    live = (row < last - first) & (row < num_rows)
    node = tl.load(nodes + first + row, mask=live, other=0)
    start = tl.load(indptr + node, mask=live, other=0)
    degree = tl.load(indptr + node + 1, mask=live, other=0) - start
    begin = tl.load(offsets + row, mask=live, other=0)
    count = tl.load(offsets + row + 1, mask=live, other=0) - begin
    drawn_by = row_key(tl.load(keys + hop), node)
    if REPLACE:
        bits = draw(drawn_by[:, None], column[None, :]).to(tl.uint64)
        chosen = ((bits * degree[:, None].to(tl.uint64)) >> 32).to(tl.int64)
    else:
        base = degree - fanout
        chosen = tl.zeros([ROWS, WIDTH], tl.int64) - 1
        for step in range(fanout):
            bits = draw(drawn_by, tl.zeros([ROWS], tl.int32) + step).to(tl.uint64)
            bound = tl.maximum(base + step + 1, 1).to(tl.uint64)
            drawn = ((bits * bound) >> 32).to(tl.int64)
            taken = tl.max((chosen == drawn[:, None]).to(tl.int32), 1) > 0
            drawn = tl.where(taken, base + step, drawn)
            chosen = tl.where((column == step)[None, :], drawn[:, None], chosen)
        chosen = tl.where((degree <= fanout)[:, None], column[None, :].to(tl.int64), chosen)
    inside = live[:, None] & (column[None, :] < count[:, None])
    slot = start[:, None] + chosen
    place = begin[:, None] + column[None, :]
    source = tl.load(indices + slot, mask=inside, other=0)
    tl.store(edges + place, slot, mask=inside)
    tl.store(sources + place, source.to(tl.int32), mask=inside)
    tl.atomic_min(table + source, (last + place).to(tl.int32), mask=inside)


@triton.jit(do_not_specialize=["hop"])
def _all_kernel(
    indptr,
    indices,
    nodes,
    sizes,
    offsets,
    edges,
    sources,
    table,
    hop,
    ONCE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Take every edge of a row, and claim their sources in the table; tensors as in `_draw_kernel`."""
    row = tl.program_id(0)
    last = tl.load(sizes + hop)
    first = last * 0
    if ONCE:
        first = tl.load(sizes + hop - 1, mask=hop > 0, other=0)
    if row < last - first:
        start = tl.load(indptr + tl.load(nodes + first + row))
        begin = tl.load(offsets + row)
        count = tl.load(offsets + row + 1) - begin
        for k in range(0, count, BLOCK):
            at = k + tl.arange(0, BLOCK)
            live = at < count
            source = tl.load(indices + start + at, mask=live, other=0)
            tl.store(edges + begin + at, start + at, mask=live)
            tl.store(sources + begin + at, source.to(tl.int32), mask=live)
            tl.atomic_min(table + source, (last + begin + at).to(tl.int32), mask=live)


@triton.jit(do_not_specialize=["hop", "num_rows"])
def _first_kernel(sizes, offsets, sources, table, out, hop, num_rows, bound, BLOCK: tl.constexpr):
    """Store 1 for each edge that is the first with its source, where that is no row yet: out [bound] int32.

    The other tensors are as in `_draw_kernel`.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = at < tl.load(offsets + num_rows)
    source = tl.load(sources + at, mask=live, other=0)
    held = tl.load(table + source, mask=live, other=-1)
    tl.store(out + at, (held == tl.load(sizes + hop) + at).to(tl.int32), mask=at < bound)


@triton.jit(do_not_specialize=["hop", "num_rows"])
def _row_kernel(
    sizes, totals, offsets, sources, table, ranks, local, nodes, hop, num_rows, bound, BLOCK: tl.constexpr
):
    """Store the source row of each edge, the new rows, and how many rows and edges there are now.

    tensor      shape               holds
    sizes       [hops + 1]          out: entry hop + 1, the rows there are now
    totals      [hops]              out: the edges of this hop
    ranks       [bound]             how many edges up to each are the first with a new source
    local       [bound]             out: the source row of each edge
    nodes       [rows, at most]     out: the nodes of new rows

    `offsets`, `sources` and `table` are as in `_draw_kernel`.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    known = tl.load(sizes + hop)
    total = tl.load(offsets + num_rows)
    live = at < total
    source = tl.load(sources + at, mask=live, other=0)
    held = tl.load(table + source, mask=live, other=0).to(tl.int64)
    fresh = held >= known
    rank = tl.load(ranks + held - known, mask=live & fresh, other=0)
    row = tl.where(fresh, known + rank - 1, held)
    tl.store(local + at, row.to(tl.int32), mask=live)
    tl.store(nodes + row, source.to(tl.int64), mask=live & (held == known + at))
    if tl.program_id(0) == 0:
        tl.store(sizes + hop + 1, known + tl.load(ranks + bound - 1))
        tl.store(totals + hop, total)


@triton.jit(do_not_specialize=["hop"])
def _note_kernel(nodes, sizes, table, hop, count, FREED: tl.constexpr, BLOCK: tl.constexpr):
    """Note the number of each row in the table, or that its node is free again."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = (row < tl.load(sizes + hop)) & (row < count)
    node = tl.load(nodes + row, mask=live, other=0)
    value = row
    if FREED:
        value = tl.full([BLOCK], 2147483647, tl.int32)
    tl.store(table + node, value, mask=live)


def new_table(num_nodes: int, device: torch.device) -> Tensor:
    """Return a table in which no node is a row, [num_nodes] int32; `sample` leaves it so."""
    return torch.full((max(num_nodes, 1),), FREE, dtype=torch.int32, device=device)


def sample(
    indptr: Tensor,
    indices: Tensor,
    seeds: Tensor,
    fanouts: Sequence[int],
    keys: Sequence[int],
    table: Tensor,
    *,
    replace: bool = False,
    once: bool = False,
) -> tuple[Tensor, list[DrawnEdges]]:
    """Return the nodes of all rows, seeds first, and the edges of each hop; the seeds are distinct nodes."""
    given = packed(seeds, keys).to(indptr.device)
    work = _Work(indptr, indices, given, table, len(fanouts), replace=replace, once=once)
    for fanout in fanouts:
        work.draw(int(fanout))
    return work.finish()


def packed(seeds: Tensor, keys: Sequence[int]) -> Tensor:
    """Return seeds and the keys of the hops in one tensor of the host, [seeds + hops] int64."""
    return torch.cat([seeds.cpu().long(), torch.tensor([signed(int(key)) for key in keys], device="cpu")])


class CapturedDraws:
    """The launches of a call with so many seeds and such fanouts, captured once; no fanout is negative.

    Used by one thread at a time, on whichever stream.
    """

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        num_seeds: int,
        fanouts: Sequence[int],
        replace: bool,
        once: bool,
    ) -> None:
        device = indptr.device
        self.given = torch.zeros(num_seeds + len(fanouts), dtype=torch.int64, device=device)
        self.graph = torch.cuda.CUDAGraph()
        table = new_table(indptr.shape[0] - 1, device)
        # Small kernels, which are not to wait behind all of a step: the stream gives them their priority.
        stream = torch.cuda.Stream(device, priority=-1)
        with gpu.capturing(self.graph, stream=stream):
            self.work = _Work(indptr, indices, self.given, table, len(fanouts), replace=replace, once=once)
            for fanout in fanouts:
                self.work.draw(int(fanout))
            self.work.clear()
        self.work.indptr = self.work.indices = (
            self.given
        )  # the graph's, which a recording does not keep alive
        self.table = table
        self.free = torch.cuda.Event()
        self.free.record()

    def sample(self, seeds: Tensor, keys: Sequence[int]) -> tuple[Tensor, list[DrawnEdges]]:
        """Return what the function `sample` returns."""
        stream = torch.cuda.current_stream(self.given.device)
        stream.wait_event(self.free)
        self.given.copy_(packed(seeds, keys), non_blocking=True)
        self.graph.replay()
        nodes, found = self.work.cut()
        copied = [
            DrawnEdges(hop.indptr.clone(), hop.indices.clone(), hop.edges.clone(), hop.num_rows)
            for hop in found
        ]
        out = nodes.clone(), copied
        self.free.record(stream)
        return out


class _Work:
    """One call: buffers for as many rows and edges as there could be, and the counts on the device."""

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        given: Tensor,
        table: Tensor,
        hops: int,
        *,
        replace: bool,
        once: bool,
    ) -> None:
        self.indptr, self.indices, self.table = indptr, indices, table
        self.replace, self.once = replace, once
        self.num_nodes, self.device = indptr.shape[0] - 1, indptr.device
        count = given.shape[0] - hops
        self.nodes, self.keys, self.bounds = given[:count], given[count:], [count]
        # rows after each hop, then edges of each hop
        self.counts = torch.zeros(2 * hops + 1, dtype=torch.int64, device=self.device)
        self.counts[:1].fill_(count)
        self.sizes, self.totals = self.counts[: hops + 1], self.counts[hops + 1 :]
        self.held: list[tuple[Tensor, Tensor, Tensor]] = []
        self._note(0, freed=False)

    def draw(self, fanout: int) -> None:
        """Add a hop."""
        hop, rows = len(self.held), self.bounds[-1]
        offsets = torch.zeros(rows + 1, dtype=torch.int64, device=self.device)
        shared = {"ONCE": self.once}
        every = fanout < 0
        counts = torch.empty(
            triton.cdiv(max(rows, 1), _BLOCK) * _BLOCK, dtype=torch.int64, device=self.device
        )
        if rows:
            _count_kernel[(triton.cdiv(rows, _BLOCK),)](
                self.indptr, self.nodes, self.sizes, counts, hop, fanout,
                ALL=every, REPLACE=self.replace, BLOCK=_BLOCK, **shared,
            )  # fmt: skip
            torch.cumsum(counts[:rows], 0, out=offsets[1:])
        bound = int(offsets[-1]) if every else rows * fanout  # for all edges the host has to ask
        if rows + bound >= FREE:
            raise InputError(f"a batch of up to {bound:,} edges does not fit; use fewer seeds or a fanout")
        found = min(rows + bound, self.num_nodes)
        edges = torch.empty(bound, dtype=torch.int64, device=self.device)
        sources, local = (torch.empty(bound, dtype=torch.int32, device=self.device) for _ in range(2))
        nodes = torch.empty(found, dtype=torch.int64, device=self.device)
        nodes[:rows] = self.nodes
        self.nodes = nodes
        self.bounds.append(found)
        self.held.append((offsets, local, edges))
        if not bound:
            self.sizes[hop + 1] = self.sizes[hop]
            return
        given = (self.indptr, self.indices, nodes, self.sizes, offsets, edges, sources, self.table)
        if every:
            _all_kernel[(rows,)](*given, hop, BLOCK=128, num_warps=1, **shared)
        else:
            width = power(fanout)
            tile = max(1, min(64, 1024 // width))
            _draw_kernel[(triton.cdiv(rows, tile),)](
                *given, rows, self.keys, hop, fanout, REPLACE=self.replace, ROWS=tile, WIDTH=width, **shared
            )
        self._find(hop, rows, bound, sources, local)

    def finish(self) -> tuple[Tensor, list[DrawnEdges]]:
        """Clear the table, wait, and return the rows and edges."""
        self.clear()
        return self.cut()

    def clear(self) -> None:
        """Leave no node a row in the table."""
        self._note(len(self.held), freed=True)

    def cut(self) -> tuple[Tensor, list[DrawnEdges]]:
        """Wait, and cut the buffers to size."""
        hops = len(self.held)
        counts: list[int] = self.counts.tolist()
        sizes, totals = counts[: hops + 1], counts[hops + 1 :]
        found = []
        for hop, (offsets, local, edges) in enumerate(self.held):
            first = sizes[hop - 1] if self.once and hop else 0
            total = totals[hop]
            found.append(
                DrawnEdges(offsets[: sizes[hop] - first + 1], local[:total], edges[:total], sizes[hop + 1])
            )
        return self.nodes[: sizes[-1]], found

    def _find(self, hop: int, rows: int, bound: int, sources: Tensor, local: Tensor) -> None:
        offsets = self.held[hop][0]
        grid = (triton.cdiv(bound, _BLOCK),)
        first = torch.empty(bound, dtype=torch.int32, device=self.device)
        _first_kernel[grid](self.sizes, offsets, sources, self.table, first, hop, rows, bound, BLOCK=_BLOCK)
        ranks = torch.cumsum(first, 0, dtype=torch.int32)
        _row_kernel[grid](
            self.sizes, self.totals, offsets, sources, self.table, ranks, local, self.nodes, hop, rows, bound,
            BLOCK=_BLOCK,
        )  # fmt: skip
        self._note(hop + 1, freed=False)

    def _note(self, hop: int, *, freed: bool) -> None:
        count = self.nodes.shape[0]
        if count:
            grid = (triton.cdiv(count, _BLOCK),)
            _note_kernel[grid](self.nodes, self.sizes, self.table, hop, count, FREED=freed, BLOCK=_BLOCK)
