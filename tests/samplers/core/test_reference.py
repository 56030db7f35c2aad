"""The native core of the samplers and its numpy form: the same bits for every way of drawing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from weft.draw import draw_lanes, exact_log, row_keys
from weft.graph import Graph
from weft.kernels import native
from weft.samplers import NeighborSampler
from weft.samplers.core import native_draws as samplers_native
from weft.samplers.core import reference
from weft.samplers.core.request import Request, Sample

AUTHOR, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")


def skewed(num_nodes: int = 300, num_edges: int = 12_000, seed: int = 0, **data: Any) -> Graph:
    """Return a graph with hubs of some thousand edges, small degrees and nodes without any."""
    made = np.random.default_rng(seed)
    dst = (num_nodes * made.random(num_edges) ** 4).astype(np.int64)
    src = (num_nodes * made.random(num_edges)).astype(np.int64)
    return Graph.from_edges(np.stack([src, dst]), num_nodes=num_nodes, **data)


def typed() -> Graph:
    made = np.random.default_rng(1)
    nodes = {"author": {"num_nodes": 50}, "paper": {"num_nodes": 120, "y": [0] * 120}}
    writes = np.stack([made.integers(50, size=3000), (120 * made.random(3000) ** 3).astype(np.int64)])
    return Graph.from_types(nodes, {AUTHOR: writes, CITES: made.integers(120, size=(2, 500))})


def requests() -> dict[str, Request]:
    plain, weight = skewed(), np.random.default_rng(2).random(12_000) * (np.arange(12_000) % 7 > 0)
    related = skewed(edge_type=np.arange(12_000) % 4)
    timed = skewed(edge_time=np.arange(12_000) % 100, edge_weight=weight)
    seeds = torch.arange(0, 300, 6)
    made = {
        "uniform": request(NeighborSampler(plain, [15, 10, 5]), seeds),
        "once": request(NeighborSampler(plain, [15, 10, 5]), seeds, once=True),
        "wide": request(NeighborSampler(plain, [20, 40, 300]), seeds),
        "odd": request(NeighborSampler(plain, [8, 16, 17, 1]), seeds),
        "all and none": request(NeighborSampler(plain, [-1, 0, 2]), seeds),
        "replace": request(NeighborSampler(plain, [15, -1, 33], replace=True), seeds),
        "weight": request(NeighborSampler(plain, [5, 3], weight=torch.from_numpy(weight)), seeds),
        "relations in order": request(NeighborSampler(related, [12, 3]), seeds),
        "types": request(
            NeighborSampler(typed(), [{AUTHOR: 9, CITES: 2}, {AUTHOR: 3, CITES: -1}]), seeds[:25]
        ),
        "types, once": request(NeighborSampler(typed(), [3, 3]), seeds[:25], once=True),
        "time": request(NeighborSampler(timed, [6, 6], temporal=True), seeds, times=seeds % 100),
        "time and weight": request(
            NeighborSampler(timed, [6, 6], temporal=True, weight="weight"), seeds, times=seeds % 90
        ),
        "no seeds": request(NeighborSampler(plain, [3]), seeds[:0]),
    }
    return made | {
        "hash": replace(made["uniform"], table=2),
        "hash, types": replace(made["types"], table=2),
        "dense": replace(made["uniform"], table=1),
        "64-bit columns": replace(
            made["uniform"], slots=replace(made["uniform"].slots, indices=plain.indices.long())
        ),
    }


def request(sampler: NeighborSampler, seeds: torch.Tensor, once: bool = False, times: Any = None) -> Request:
    ranks = None if times is None or sampler.times is None else sampler.times.ranks(seeds, times)
    keys = sampler.keys(3, 0, once=once)
    return Request(
        sampler.slots, seeds, sampler.fanout, keys, seed_time=ranks, replace=sampler.replace, once=once
    )


REQUESTS = requests()


def parts(found: Sample) -> list[torch.Tensor | None]:
    listed = [found.nodes, found.seed_of, torch.tensor([hop.num_rows for hop in found.hops])]
    for hop in found.hops:
        listed += [hop.indptr, hop.indices, hop.edge_ids, hop.scale]
    return listed


@pytest.mark.parametrize("name", REQUESTS)
def test_both_forms_give_the_same_bits(name: str) -> None:
    core = native.library()
    if core is None:
        pytest.skip(f"the native core is {native.describe()}")
    expected = parts(reference.sample(REQUESTS[name]))
    for level in range(core.weft_detected_level() + 1):
        core.weft_set_level(level)
        try:
            made = parts(samplers_native.sample(core, REQUESTS[name]))
        finally:
            core.weft_set_level(core.weft_detected_level())
        assert [value is None for value in made] == [value is None for value in expected]
        for ours, theirs in zip(made, expected):
            assert ours is None or (ours.dtype == theirs.dtype and torch.equal(ours, theirs))  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["uniform", "odd", "replace"])
def test_draws_are_those_of_a_plain_loop(name: str) -> None:
    asked = REQUESTS[name]
    found = reference.sample(asked)
    indptr, rows = asked.slots.indptr.tolist(), found.nodes
    for number, hop in enumerate(found.hops):
        fanout, key = int(asked.fanouts[number, 0]), int(asked.keys[number, 0])
        for row in range(hop.indptr.numel() - 1):
            node = int(rows[row])
            degree = indptr[node + 1] - indptr[node]
            expected = loop(key, node, degree, fanout, asked.replace)
            drawn = hop.edge_ids[hop.indptr[row] : hop.indptr[row + 1]] - indptr[node]
            assert drawn.tolist() == expected


def loop(key: int, node: int, degree: int, fanout: int, again: bool) -> list[int]:
    """Return the positions of one row, written as in the books."""
    if fanout < 0 or (degree <= fanout and not again) or degree == 0:
        return list(range(degree))
    row = row_keys(key, np.array([node]))

    def below(bound: int, lane: int) -> int:
        return int(draw_lanes(row, lane)[0]) * bound >> 32

    if again:
        return [below(degree, lane) for lane in range(fanout)]
    chosen: list[int] = []
    for lane, top in enumerate(range(degree - fanout, degree)):
        drawn = below(top + 1, lane)
        chosen.append(top if drawn in chosen else drawn)
    return chosen


def test_logarithms_are_right() -> None:
    values = np.concatenate([np.random.default_rng(0).random(1000), [2.0**-54, 1 - 2.0**-53, 0.5, 1e-300]])
    np.testing.assert_allclose(exact_log(values), np.log(values), rtol=1e-14, atol=1e-16)


def test_sampling_runs_without_the_core() -> None:
    sampler = NeighborSampler(skewed(), [4, 4])
    with native.disabled():
        made = sampler.sample([1, 2, 3])
    assert torch.equal(made.nodes, sampler.sample([1, 2, 3]).nodes)
