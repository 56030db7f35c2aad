"""Intervals: what a worker holds, cut into runs of rows that each go through the layers on their own.

Rows are numbered as the worker's shard does: own rows, then the halo. To an interval all rows of others are
halo, whether another interval of this worker computes them or another worker.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch
from torch import Tensor

from weft.graph.parts.shard import Shard
from weft.graph.sparse import Features
from weft.graph.topology import index_dtype

REMOTE = -1
"""Stands for all other workers among the intervals that rows come from."""


@dataclass(eq=False)
class Interval:
    """Rows `start` … `stop` of a worker, with the edges into them."""

    number: int
    start: int
    stop: int
    shard: Shard
    """Its own rows, and as halo the other rows that it reads, ascending by the worker's numbers."""
    halo: Tensor
    """[h] the worker's number of each halo row."""
    boundary: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """Own rows, from 0, that others read: what it hands out of a tensor."""
    sources: list[tuple[int, Tensor]] = field(default_factory=list)
    """Of whom it reads which of the rows handed out; joined in this order they are the halo."""
    readers: list[tuple[int, slice, Tensor]] = field(default_factory=list)
    """Which intervals read it: where its rows stand in their halo, and which own rows these are."""


def cut_rows(shard: Shard, count: int) -> list[tuple[int, int]]:
    """Return at most `count` runs of own rows, alike in rows and edges together."""
    rows = len(shard.node_ids)
    work = shard.indptr[: rows + 1] + torch.arange(rows + 1)  # rises with every row
    targets = work[-1] * torch.arange(1, count) / count
    ends = [0, *torch.searchsorted(work, targets.to(work.dtype)).tolist(), rows]
    runs = [(start, stop) for start, stop in pairwise(ends) if stop > start]
    return runs or [(0, rows)]


def make_intervals(shard: Shard, sent: Tensor, count: int) -> list[Interval]:
    """Return the intervals of a worker; `sent` are the own rows that other workers read."""
    rows = len(shard.node_ids)
    made = [_cut_out(shard, number, run) for number, run in enumerate(cut_rows(shard, count))]
    read = torch.zeros(rows, dtype=torch.bool)
    read[sent] = True
    for each in made:
        read[each.halo[each.halo < rows]] = True
    for each in made:
        each.boundary = read[each.start : each.stop].nonzero().flatten()
    for each in made:
        each.sources = list(_sources(each, made, rows))
        each.readers = list(_readers(each, made))
    return made


def places_of(rows: Tensor, intervals: Sequence[Interval]) -> Tensor:
    """Return where own rows of a worker stand among those its intervals hand out, one after the other."""
    handed = torch.cat([each.boundary + each.start for each in intervals])
    return torch.searchsorted(handed, rows)


def _sources(one: Interval, every: Sequence[Interval], rows: int) -> Iterator[tuple[int, Tensor]]:
    for other in every:
        asked = one.halo[(one.halo >= other.start) & (one.halo < other.stop)] - other.start
        if len(asked):
            yield other.number, torch.searchsorted(other.boundary, asked)
    remote = one.halo[one.halo >= rows] - rows
    if len(remote):
        yield REMOTE, remote


def _readers(one: Interval, every: Sequence[Interval]) -> Iterator[tuple[int, slice, Tensor]]:
    for other in every:
        bounds = torch.searchsorted(other.halo, torch.tensor([one.start, one.stop])).tolist()
        if other is not one and bounds[1] > bounds[0]:
            chosen = slice(*bounds)
            yield other.number, chosen, other.halo[chosen] - one.start


def _cut_out(shard: Shard, number: int, run: tuple[int, int]) -> Interval:
    """Return one interval, who reads it not yet known."""
    start, stop = run
    edges = slice(int(shard.indptr[start]), int(shard.indptr[stop]))
    ends = shard.indices[edges].long()
    outside = (ends < start) | (ends >= stop)
    halo = torch.unique(ends[outside])
    local = torch.where(outside, stop - start + torch.searchsorted(halo, ends), ends - start)
    own = torch.arange(start, stop)
    held = replace(
        shard,
        node_ids=shard.node_ids[start:stop],
        node_part=shard.node_part[start:stop],
        halo_ids=shard.row_ids[halo],
        halo_part=torch.cat([shard.node_part, shard.halo_part])[halo],
        indptr=shard.indptr[start : stop + 1] - edges.start,
        indices=local.to(index_dtype(stop - start + len(halo))),
        edge_ids=shard.edge_ids[edges],
        edge_type=None if shard.edge_type is None else shard.edge_type[edges],
        edge_data={name: value[edges] for name, value in shard.edge_data.items()},
        degrees=shard.degrees.rows(torch.cat([own, halo])),
        node_data=_data_of(shard, start, stop),
    )
    return Interval(number, start, stop, held, halo)


def _data_of(shard: Shard, start: int, stop: int) -> dict[str, dict[str, Features]]:
    """Return x, y and masks of some rows, as views of the worker's where they can be."""
    found: dict[str, dict[str, Features]] = {}
    for kind, rows in shard.type_ranges().items():
        first, last = (min(max(end, rows.start), rows.stop) - rows.start for end in (start, stop))
        found[kind] = {
            name: value[first:last] if isinstance(value, Tensor) else value.rows(torch.arange(first, last))
            for name, value in shard.node_data[kind].items()
        }
    return found
