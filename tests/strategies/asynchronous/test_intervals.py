"""Every edge is in one interval, every row that is read is handed out, and places agree on both ends."""

import pytest
import torch
from asynchronous_jobs import held

from weft.graph.parts.shard import Shard, make_shards
from weft.strategies.asynchronous.intervals import REMOTE, cut_rows, make_intervals, places_of


def shard_of(kind: str, parts: int) -> Shard:
    graph, _ = held(kind, "gcn")
    return make_shards(graph, torch.arange(graph.num_nodes).int() % parts)[0]


@pytest.mark.parametrize("kind", ["hub", "sparse", "isolated"])
@pytest.mark.parametrize("parts", [1, 2])
def test_intervals_hold_what_the_worker_holds(kind: str, parts: int) -> None:
    shard = shard_of(kind, parts)
    sent = torch.tensor([0, 3])
    made = make_intervals(shard, sent, 4)
    assert torch.equal(torch.cat([each.shard.node_ids for each in made]), shard.node_ids)
    assert torch.equal(torch.cat([each.shard.edge_ids for each in made]), shard.edge_ids)
    ids = torch.cat([each.shard.row_ids[each.shard.indices.long()] for each in made])
    assert torch.equal(ids, shard.row_ids[shard.indices.long()])
    handed = torch.cat([shard.node_ids[each.start + each.boundary] for each in made])
    assert torch.equal(handed[places_of(sent, made)], shard.node_ids[sent])


def test_readers_and_sources_name_the_same_rows() -> None:
    shard = shard_of("hub", 2)
    made = make_intervals(shard, torch.zeros(0, dtype=torch.int64), 3)
    for each in made:
        read = [
            shard.halo_ids[places]
            if source == REMOTE
            else made[source].shard.node_ids[made[source].boundary][places]
            for source, places in each.sources
        ]
        assert torch.equal(torch.cat(read), each.shard.halo_ids)
        for reader, chosen, rows in each.readers:
            assert torch.equal(made[reader].shard.halo_ids[chosen], each.shard.node_ids[rows])
            assert each.number in [source for source, _ in made[reader].sources]


def test_runs_are_alike_in_rows_and_edges_and_never_empty() -> None:
    shard = shard_of("hub", 1)
    rows = len(shard.node_ids)
    for count in (1, 3, 10 * rows):
        runs = cut_rows(shard, count)
        assert [start for start, _ in runs] == [0, *[stop for _, stop in runs[:-1]]]
        assert runs[-1][1] == rows
        assert all(stop > start for start, stop in runs)
    work = shard.indptr[: rows + 1] + torch.arange(rows + 1)
    sizes = [int(work[stop] - work[start]) for start, stop in cut_rows(shard, 3)]
    assert max(sizes) - min(sizes) <= int((work[1:] - work[:-1]).max())
