"""The samplers' core in numpy: the definition of what the native one does, and its stand-in.

Both give the same bits; `iterations` of LABOR are here alone. Uniform draws are `weft.draw.draw_positions`;
weighted ones are the bottom k of exponential numbers drawn by the ids of edges; rows are found in order of
first appearance, a hop's new ones then sorted by type.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.draw import draw_positions, exponential, row_keys
from weft.errors import GraphError
from weft.samplers.core.chances import chances, numbers, taken
from weft.samplers.core.request import Hop, Request, Sample, Slots

Ints = NDArray[np.int64]


def sample(request: Request) -> Sample:
    """Return the sample of one batch."""
    slots, pairs = request.slots, request.seed_time is not None
    seeds = checked_seeds(request.seeds, slots.num_nodes, distinct=not pairs)
    # Rows are known by one number: the node, or seed · nodes + node, or that of the seed's group.
    group = np.arange(len(seeds)) if request.seed_group is None else request.seed_group.numpy()
    rows = seeds + (group * slots.num_nodes if pairs else 0)
    first, hops = 0, []
    for fanouts, keys in zip(request.fanouts, request.keys):
        last = len(rows)
        drawn = _draw_hop(request, rows[first:last], fanouts, keys)
        rows, local = find_rows(rows, drawn.ids, slots.node_offsets)
        hops.append(_hop(drawn, local, len(rows)))
        first = last if request.once else 0
    nodes = torch.from_numpy(rows % slots.num_nodes if slots.num_nodes else rows)
    return Sample(nodes, torch.from_numpy(rows // slots.num_nodes) if pairs else None, tuple(hops))


@dataclass
class _Sample:
    counts: Ints  # edges of each row drawn for
    ids: Ints  # of the source of each edge
    edges: Ints
    scale: NDArray[np.float64] | None


@dataclass
class _Jobs:
    """Ranges of slots to draw from: of whole rows, or of each relation of a row."""

    row: Ints
    start: Ints
    degree: Ints
    fanout: Ints
    key: NDArray[np.uint64]


def checked_seeds(seeds: Tensor, num_nodes: int, *, distinct: bool = True) -> Ints:
    """Return the seeds, or refuse those that are no nodes and those that come twice."""
    ids: Ints = seeds.numpy()
    outside = ids[(ids < 0) | (ids >= num_nodes)]
    if len(outside):
        raise GraphError(f"seed {outside[0]} is no node: expected 0 … {num_nodes - 1}")
    values, counts = np.unique(ids, return_counts=True)
    if distinct and (counts > 1).any():
        twice = values[counts > 1][0]
        raise GraphError(f"seed {twice} is there twice: a batch has each seed once; use torch.unique(seeds)")
    return ids


def _draw_hop(request: Request, rows: Ints, fanouts: Ints, keys: NDArray[np.uint64]) -> _Sample:
    slots = request.slots
    jobs = _jobs(request, rows, fanouts, keys)
    scale: NDArray[np.float64] | None
    if request.labor:
        counts, chosen, scale = _below_chance(request, jobs)
    elif slots.weight is None:
        counts, positions = draw_positions(jobs.key, jobs.degree, jobs.fanout, replace=request.replace)
        chosen = _shown(request, np.repeat(jobs.start, counts), positions)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.repeat(jobs.degree / counts, counts) if slots.scaled else None
    else:
        counts, chosen, scale = _bottom_k(request, jobs)
    edge_row = np.repeat(jobs.row, counts)
    if slots.sorted:
        chosen = chosen[np.lexsort((chosen, edge_row))]
    ids = slots.indices.numpy()[chosen].astype(np.int64)
    if request.seed_time is not None:
        ids += rows[edge_row] // slots.num_nodes * slots.num_nodes
    edges = chosen if slots.edge_map is None else slots.edge_map.numpy()[chosen]
    return _Sample(np.bincount(edge_row, minlength=len(rows)), ids, edges, scale)


def _jobs(request: Request, rows: Ints, fanouts: Ints, keys: NDArray[np.uint64]) -> _Jobs:
    slots, indptr = request.slots, request.slots.indptr.numpy()
    nodes = rows % slots.num_nodes if slots.num_nodes else rows
    row, start, kind = np.arange(len(rows)), indptr[nodes], np.zeros(len(rows), dtype=np.int64)
    degree = indptr[nodes + 1] - start
    if slots.edge_type is not None:
        row, start, degree, kind = _by_relation(slots.edge_type.numpy(), start, degree)
    key = keys[kind]
    if request.seed_time is not None:
        seed = rows[row] // slots.num_nodes
        degree = _seen(slots, start, degree, request.seed_time.numpy()[seed])
        named = request.seeds if request.seed_key is None else request.seed_key
        key = row_keys(key, named.numpy()[seed])
    if slots.weight is None and not request.labor:  # these are keyed by edges alone, or by sources
        key = row_keys(key, nodes[row])
        degree = degree - _hidden_in(request, start, degree)
    return _Jobs(row, start, degree, fanouts[kind], key)


def _by_relation(kinds: NDArray[np.int32], start: Ints, degree: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return row, start, degree and relation of the ranges of one relation."""
    slot = ranges(start, degree)
    row = np.repeat(np.arange(len(start)), degree)
    new = np.ones(len(slot), dtype=bool)
    new[1:] = (row[1:] != row[:-1]) | (kinds[slot[1:]] != kinds[slot[:-1]])
    firsts = np.flatnonzero(new)
    lengths = np.diff(np.append(firsts, len(slot)))
    return row[firsts], slot[firsts], lengths, kinds[slot[firsts]].astype(np.int64)


def _seen(slots: Slots, start: Ints, degree: Ints, time: Ints) -> Ints:
    """Return how many slots from `start` on have a lower time; times rise there."""
    assert slots.edge_time is not None
    early = slots.edge_time.numpy()[ranges(start, degree)] < np.repeat(time, degree)
    return np.bincount(np.repeat(np.arange(len(start)), degree)[early], minlength=len(start))


def _hidden_in(request: Request, start: Ints, degree: Ints) -> Ints | int:
    """Return how many slots of each range are hidden."""
    if request.hidden is None:
        return 0
    hidden: Ints = request.hidden.numpy()
    inside: Ints = np.searchsorted(hidden, start + degree) - np.searchsorted(hidden, start)
    return inside


def _shown(request: Request, start: Ints, positions: Ints) -> Ints:
    """Return the slots at these positions among those of each range that are not hidden."""
    slots: Ints = start + positions
    if request.hidden is None:
        return slots
    hidden: Ints = request.hidden.numpy()
    before = np.searchsorted(hidden, start)
    # The j-th hidden slot comes before a position where no more than hidden[j] − j others do.
    others = hidden - np.arange(len(hidden))
    return slots + np.searchsorted(others, slots - before, side="right") - before


def ranges(start: Ints, count: Ints) -> Ints:
    """Return start … start + count − 1 of each, one after the other."""
    before = np.cumsum(count) - count
    slots: Ints = np.arange(count.sum()) + np.repeat(start - before, count)
    return slots


def _bottom_k(request: Request, jobs: _Jobs) -> tuple[Ints, Ints, NDArray[np.float64]]:
    """Return counts, slots and thresholds of the `fanout` smallest exponential numbers of each range.

    Of the heaviest edges, what each stands for is in the place of thresholds.
    """
    slots = request.slots
    assert slots.weight is not None
    slot, job = ranges(jobs.start, jobs.degree), np.repeat(np.arange(len(jobs.row)), jobs.degree)
    positive = slots.weight.numpy()[slot] > 0
    if request.hidden is not None:
        positive &= ~np.isin(slot, request.hidden.numpy())
    slot, job = slot[positive], job[positive]
    edges = slot if slots.edge_map is None else slots.edge_map.numpy()[slot]
    weight = slots.weight.numpy()[slot]
    number = -weight if request.top else exponential(jobs.key[job], edges, weight)
    order = np.lexsort((slot, number, job))
    counts_of_jobs = np.bincount(job, minlength=len(jobs.row))
    wanted = np.where(jobs.fanout < 0, counts_of_jobs, np.minimum(jobs.fanout, counts_of_jobs))
    starts = np.cumsum(counts_of_jobs) - counts_of_jobs
    threshold = np.full(len(counts_of_jobs), np.inf)
    cut = wanted < counts_of_jobs
    threshold[cut] = number[order][(starts + wanted)[cut]]
    rank = np.arange(len(slot)) - np.repeat(starts, counts_of_jobs)
    taken = np.sort(order[rank < np.repeat(wanted, counts_of_jobs)])  # back in the order of ranges and slots
    if request.top:
        with np.errstate(divide="ignore", invalid="ignore"):
            threshold = (jobs.degree - _hidden_in(request, jobs.start, jobs.degree)) / wanted
    return wanted, slot[taken], np.repeat(threshold, wanted)


def _below_chance(request: Request, jobs: _Jobs) -> tuple[Ints, Ints, NDArray[np.float64]]:
    """Return counts, slots and what each stands for, of the edges whose number lies below their chance."""
    slot, job = ranges(jobs.start, jobs.degree), np.repeat(np.arange(len(jobs.row)), jobs.degree)
    src = request.slots.indices.numpy()[slot].astype(np.int64)
    chance = chances(src, job, jobs.degree, jobs.fanout, request.iterations)
    drawn = taken(numbers(jobs.key[job], src, job), chance, job, len(jobs.row))
    slot, job, chance = slot[drawn], job[drawn], chance[drawn]
    total = np.bincount(job, 1.0 / chance, minlength=len(jobs.row))
    return np.bincount(job, minlength=len(jobs.row)), slot, jobs.degree[job] / (chance * total[job])


def find_rows(rows: Ints, ids: Ints, node_offsets: Sequence[int]) -> tuple[Ints, Ints]:
    """Return all rows, the new ones at the end in the order of types, and the row of each id."""
    everything = np.concatenate([rows, ids])
    distinct, first, inverse = np.unique(everything, return_index=True, return_inverse=True)
    appearance = np.argsort(first, kind="stable")
    new = distinct[appearance][len(rows) :]
    if len(node_offsets) > 2:
        kind = np.searchsorted(node_offsets, new % node_offsets[-1], side="right")
        new = new[np.argsort(kind, kind="stable")]
    rows = np.concatenate([rows, new])
    row_of = np.empty(len(distinct), dtype=np.int64)
    row_of[np.searchsorted(distinct, rows)] = np.arange(len(rows))
    return rows, row_of[inverse[len(everything) - len(ids) :]]


def _hop(drawn: _Sample, local: Ints, num_rows: int) -> Hop:
    indptr = np.concatenate([[0], np.cumsum(drawn.counts)])
    scale = None if drawn.scale is None else torch.from_numpy(drawn.scale)
    return Hop(
        torch.from_numpy(indptr),
        torch.from_numpy(local.astype(np.int32)),
        torch.from_numpy(drawn.edges.astype(np.int64)),
        scale,
        num_rows,
    )
