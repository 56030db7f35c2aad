"""Batches of a bucket: every edge once, chunks of one kind of ends, candidates of the right type."""

from typing import Any

import numpy as np
import pytest
import torch

from weft.strategies.buckets.chunks import BucketBatches, BucketEdges, Candidates, EndPool


def batches(how: Candidates, *, epoch: int = 0, weight: Any = None) -> tuple[BucketEdges, BucketBatches]:
    group = torch.arange(50) % 2
    src, dst = torch.arange(50) % 7, torch.arange(50) % 9
    edges = BucketEdges(src, dst, group, group, [(0, 0), (0, 1)])
    starts = np.array([0, 5, 12])  # rows 0 … 4 are of type 0, 5 … 11 of type 1
    ends: Any = {"src": EndPool(starts), "dst": EndPool(starts, weight)}
    return edges, BucketBatches(edges, ends, how, batch=12, chunk=4, seed=1, epoch=epoch, bucket=3)


def test_every_edge_comes_once_among_edges_of_its_kind() -> None:
    edges, made = batches(Candidates(count=3))
    places = []
    for batch in made:
        here = made.order(torch.device("cpu"))[batch.edges]
        assert len({*edges.group[here].tolist()}) == 1
        assert len(here) % batch.chunks == 0
        assert len(here) <= 12
        places += here.tolist()
    assert sorted(places) == [*range(50)]
    assert places != sorted(places)


def test_candidates_are_nodes_of_the_type() -> None:
    edges, made = batches(Candidates(count=30))
    for batch in made:
        kind = int(edges.group[made.order(torch.device("cpu"))[batch.edges]][0])
        low, high = (0, 5) if kind == 0 else (5, 12)
        assert made.drawn(batch)["dst"].shape == (batch.chunks, 30)
        assert {*made.drawn(batch)["dst"].flatten().tolist()} <= {*range(low, high)}
        assert {*made.drawn(batch)["src"].flatten().tolist()} <= {*range(5)}


def test_candidates_come_by_weight() -> None:
    weight = np.array([0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 2, 0], np.float64).cumsum()
    ends = EndPool(np.array([0, 5, 12]), weight)
    first = np.bincount(ends.draw(1, np.arange(40), 0, 100).flatten(), minlength=12) / 4000
    assert first[[2, 4]] == pytest.approx([0.25, 0.75], abs=0.03)
    assert {*ends.draw(1, np.arange(4), 1, 50).flatten().tolist()} == {10}
    assert EndPool(np.array([0, 3]), np.zeros(3)).draw(1, np.arange(2), 0, 4).tolist() == [[0] * 4] * 2


def test_draws_depend_on_the_epoch_and_on_nothing_else() -> None:
    how = Candidates(count=5)
    drawn = []
    for epoch in (0, 0, 1):
        _, made = batches(how, epoch=epoch)
        drawn.append(torch.cat([made.drawn(batch)["dst"].flatten() for batch in made]).tolist())
    assert drawn[0] == drawn[1] != drawn[2]
