"""Quality: counts that can be seen on a graph of four nodes, and the bytes that follow from them."""

from collections.abc import Iterator
from pathlib import Path

import halo_jobs
import pytest
import torch
from generated_graphs import graphs, typed_graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import run_ranks

import weft
from weft.graph import Graph, SparseFeatures, row_ranges
from weft.graph.parts.assignment import Assignment, Quality
from weft.graph.parts.shard import make_shards
from weft.partitioners import quality
from weft.partitioners.quality import count_cut, count_halo, measure, predict_bytes, sent_columns

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

# 0 and 1 in part 0, 2 and 3 in part 1; 0 → 2 and 0 → 3 cross and share one halo row, 3 → 1 crosses back.
GRAPH = Graph.from_edges(
    [[0, 0, 0, 3, 2], [1, 2, 3, 1, 3]],
    x=torch.zeros(4, 8),
    y=[0, 1, 0, 1],
    train_mask=torch.tensor([True, False, False, False]),
)
PARTS = torch.tensor([0, 0, 1, 1], dtype=torch.int32)


def test_cut_halo_and_balance_of_a_small_graph() -> None:
    quality = measure(GRAPH, PARTS, 2, hidden=16, layers=2)
    assert (quality.cut_edges, quality.cut_share) == (3, 0.6)
    assert (quality.halo_rows, quality.halo_share, quality.replication) == (2, 2 / 6, 1.5)
    assert quality.links == [[0, 1], [1, 0]]
    assert (quality.nodes, quality.edges, quality.train_nodes) == ([2, 2], [2, 3], [1, 0])
    assert quality.balance["edges"] == 3 / 2.5
    assert quality.balance["train_nodes"] == 2.0
    # A row: 8 for its pointer, 32 of x, 8 of y, 1 of the mask; an edge: 4 + 8; a halo row: 8 + 4.
    assert quality.bytes == [2 * 49 + 2 * 12 + 12, 2 * 49 + 3 * 12 + 12]


def test_replicas_of_a_partition_of_edges() -> None:
    path = Graph.from_edges([[0, 1, 2], [1, 2, 3]])
    quality = measure(path, torch.tensor([0, 0, 1], dtype=torch.int32), 2, cuts="edges")
    assert quality.halo_rows == 1  # node 2 lies in both parts
    assert quality.replication == 5 / 4
    assert (quality.cut_edges, quality.edges, sum(quality.nodes)) == (0, [2, 1], 4)


def test_bytes_an_epoch_follow_the_formulas() -> None:
    told = predict_bytes(10, [128, 7])
    assert told["exact"] == 2 * 10 * (128 + 7) * 4
    assert told["stale"] == told["exact"]
    assert told["sampled 0.1"] == told["exact"] // 10
    assert told["quantised 8"] == 2 * 10 * (136 + 15)
    split = predict_bytes(10, [128, 7], cuts="edges")
    assert split == {"exact": 2 * told["exact"], "delayed 5": 2 * told["exact"] // 5, "none": 0}
    assert predict_bytes(10, [])["exact"] == 0


def test_layers_send_the_narrower_side_and_sparse_features_that_fill_up_send_too() -> None:
    assert sent_columns(GRAPH, 16, 3) == [16, 2]
    assert sent_columns(GRAPH, 16, 1) == []  # one layer aggregates the input alone
    assert sent_columns(GRAPH.with_data(y=None), 16, 3) == [16, 16]
    full = GRAPH.with_data(x=SparseFeatures.from_dense(torch.ones(4, 8)))
    assert sent_columns(full, 16, 3) == [16, 16, 2]
    thin = GRAPH.with_data(x=SparseFeatures.from_dense(torch.eye(4, 80)))
    assert sent_columns(thin, 16, 3) == [16, 2]


def test_forecast_is_what_training_sends() -> None:
    told = run_ranks(2, halo_jobs.forecast_and_sent)
    for kind, (expected, _) in told[0].items():
        assert sum(rank[kind][1] for rank in told) == expected, kind
    assert told[0]["filling"][0] == told[0]["sparse"][0] * (8 + 8 + 3) / (8 + 3)


@settings(max_examples=40, deadline=None)
@given(
    st.one_of(graphs(), typed_graphs()),
    st.integers(1, 4),
    st.sampled_from(["nodes", "edges"]),
    st.integers(0, 99),
)
def test_counts_are_those_of_the_shards(graph: Graph, num_parts: int, cuts: str, seed: int) -> None:
    count = graph.num_nodes if cuts == "nodes" else graph.num_edges
    parts = torch.randint(0, num_parts, (count,), generator=torch.Generator().manual_seed(seed)).int()
    quality = measure(graph, parts, num_parts, cuts=cuts)  # type: ignore[arg-type]
    shards = make_shards(graph, Assignment(parts, num_parts, cuts=cuts))  # type: ignore[arg-type]
    held = [len(shard.row_ids) for shard in shards]
    assert sum(held) == graph.num_nodes + quality.halo_rows
    assert quality.edges == [len(shard.edge_ids) for shard in shards]
    assert quality.nodes == [int((shard.node_part == shard.part).sum()) for shard in shards]
    if cuts == "nodes":
        assert [sum(row) for row in quality.links] == [len(shard.halo_ids) for shard in shards]
        assert (count_cut(graph, parts, num_parts), count_halo(graph, parts, num_parts)) == (
            quality.cut_edges,
            quality.halo_rows,
        )


def test_quality_survives_json() -> None:
    quality = measure(GRAPH, PARTS, 2)
    assert Quality.from_dict(quality.to_dict()) == quality


def test_a_real_graph_has_the_halo_that_counting_by_hand_gives() -> None:
    file = DATA / "cora.npz"
    if not file.is_file():
        pytest.skip(f"{file} is not there")
    from weft.datasets import open_dataset

    graph = open_dataset(file)
    parts = torch.arange(graph.num_nodes, dtype=torch.int32) % 4
    source, target = graph.edge_index
    pairs = {(int(parts[v]), int(u)) for u, v in zip(source, target) if parts[u] != parts[v]}
    assert measure(graph, parts, 4).halo_rows == len(pairs)


@pytest.mark.parametrize("some", [1, 7, 64])
def test_edges_that_are_looked_at_a_few_at_a_time_come_to_the_same(
    some: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = weft.datasets.datasets["community"](nodes=120, degree=6.0, features=2)
    parts = (torch.arange(graph.num_nodes) * 7 % 5).int()
    whole = measure(graph, parts, 5).to_dict()
    monkeypatch.setattr(row_ranges, "EDGES_AT_ONCE", some)
    assert measure(graph, parts, 5).to_dict() == whole
    assert max(len(src) for src, _ in quality._some_edges(graph, parts)) <= max(
        some, int(graph.indptr.diff().max())
    )


@pytest.mark.parametrize("marks", [1, 250, 10**9])
def test_parts_that_are_marked_a_few_at_a_time_come_to_the_same(
    marks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = weft.datasets.datasets["community"](nodes=120, degree=6.0, features=2)
    parts = (torch.arange(graph.num_nodes) * 7 % 5).int()
    src, dst = graph.edge_index
    rows = {(int(parts[v]), int(u)) for u, v in zip(src, dst) if parts[u] != parts[v]}
    expected = torch.zeros(5, 5, dtype=torch.int64)
    for reader, row in rows:
        expected[reader, parts[row]] += 1
    monkeypatch.setattr(quality, "MARKS", marks)
    assert measure(graph, parts, 5).links == expected.tolist()


def test_each_edge_is_looked_at_once_also_where_few_parts_are_marked_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = torch.Generator().manual_seed(0)
    graph = Graph.from_edges(torch.randint(0, 40, (2, 300), generator=draw), num_nodes=40)
    parts = torch.randint(0, 7, (40,), generator=draw, dtype=torch.int32)
    links, seen = measure(graph, parts, 7).links, []

    def counted(indptr: torch.Tensor, edges: int | None = None) -> Iterator[tuple[int, int]]:
        for first, last in row_ranges_before(indptr, edges):
            seen.append(int(indptr[last] - indptr[first]))
            yield first, last

    row_ranges_before = row_ranges.row_ranges
    monkeypatch.setattr(quality, "MARKS", 2 * 40)
    monkeypatch.setattr(row_ranges, "row_ranges", counted)
    count = count_halo(graph, parts, 7)
    assert sum(seen) == graph.num_edges
    assert measure(graph, parts, 7).links == links
    assert count == torch.tensor(links).sum()
