"""The grid: any shape of any number of ranks takes the steps of one process and moves the words it should."""

from typing import Any

import layout_jobs
import pytest
import torch
from halo_jobs import NODES
from ranks import run_ranks

import weft
from weft.comm.group import Group
from weft.errors import InputError, RecipeError
from weft.graph import Graph
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.partition import read_shard, write_partition
from weft.graph.parts.shard import make_shards
from weft.strategies.local import LocalGraph
from weft.strategies.merged.grid import Grid


def test_one_rank_takes_the_steps_of_one_process() -> None:
    assert layout_jobs.grids_equal_one_process(Group.alone(), layout_jobs.FEW) == []


@pytest.mark.parametrize(
    ("size", "names"),
    [(size, layout_jobs.FEW) for size in (2, 4)]
    + [pytest.param(size, tuple(layout_jobs.MODELS), marks=pytest.mark.slow) for size in (2, 4)],
    ids=["2", "4", "2-whole", "4-whole"],
)
def test_every_grid_takes_the_steps_of_one_process_and_moves_its_words(
    size: int, names: tuple[str, ...]
) -> None:
    rows = NODES // size  # that each rank owns
    for found in run_ranks(size, layout_jobs.grid_promises, names):
        assert found["wrong"] == []
        assert found["inputs"] == [0, 0]
        assert found["resumed"]
        for shape, words in found["words"].items():
            r, c = (int(count) for count in shape.split(" x "))
            gathered, summed = (r - 1) * rows * 5, (c - 1) * rows * 5
            expected = {
                "gather forward": gathered,
                "gather backward": gathered,
                "reduce forward": summed,
                "reduce backward": summed,
            }
            assert words == {name: count for name, count in expected.items() if count}


def test_a_grid_that_cannot_be_is_refused_with_those_that_can() -> None:
    assert Grid.shape({}, 6) == (6, 1)
    assert Grid.shape({"columns": 2}, 6) == (3, 2)
    assert [(each["rows"], each["columns"]) for each in Grid.layouts(6)] == [(6, 1), (3, 2), (2, 3), (1, 6)]
    with pytest.raises(RecipeError, match=r"strategy\.rows = 4: no grid of 6 .* 6 x 1, 3 x 2, 2 x 3, 1 x 6"):
        Grid.shape({"rows": 4}, 6)
    with pytest.raises(RecipeError, match=r"strategy\.rows = 2 and strategy\.columns = 2: no grid of 6"):
        Grid.shape({"rows": 2, "columns": 2}, 6)
    with pytest.raises(RecipeError, match=r"strategy\.columns = 7: no grid of 6"):
        Grid.shape({"columns": 7}, 6)


def test_an_exchange_that_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(RecipeError, match="'grid' does not allow 'sampled'; allowed: exact, skip, quantised"):
        Grid.check({"exchange": "sampled"})
    with pytest.raises(RecipeError, match="a grid of 2 x 2 is exact; 'skip' needs one column"):
        Grid.shape({"columns": 2, "exchange": "skip"}, 4)
    assert Grid.shape({"exchange": "skip"}, 4) == (4, 1)


def test_cells_hold_each_edge_once_between_their_column_and_their_row(tmp_path: Any) -> None:
    graph = layout_jobs.graph_of("hub")
    parts = (torch.arange(NODES) * 5 % 6).int()
    assignment = Assignment(parts, 6, cuts="grid", grid=(2, 3))
    write_partition(tmp_path / "parts", graph, assignment)
    seen = []
    for number, shard in enumerate(make_shards(graph, assignment)):
        read = read_shard(tmp_path / "parts", number)
        assert read.grid == (2, 3)
        for name in ("node_ids", "halo_ids", "indptr", "indices", "edge_ids"):
            assert torch.equal(getattr(read, name), getattr(shard, name))
        row_of_edge = torch.repeat_interleave(shard.indptr.diff())
        src, dst = shard.row_ids[shard.indices.long()], shard.row_ids[row_of_edge]
        assert bool((parts[dst] // 3 == number // 3).all())
        assert bool((parts[src] % 3 == number % 3).all())
        assert torch.equal(graph.indices[shard.edge_ids].long(), src)
        assert torch.equal(shard.edge_data["weight"], graph.edge_data["weight"][shard.edge_ids])
        seen.append(shard.edge_ids)
    assert torch.equal(torch.cat(seen).sort().values, torch.arange(graph.num_edges))


def test_a_rank_refuses_the_cell_of_another_grid() -> None:
    graph = layout_jobs.graph_of("directed")
    shard = make_shards(graph, Assignment(torch.zeros(NODES).int(), 1))[0]
    with pytest.raises(InputError, match="rank 0 of a grid of 1 x 1 was given part 0 of a partition by"):
        Grid(LocalGraph(shard))


def test_a_convolution_that_needs_whole_rows_is_refused_where_they_are_not() -> None:
    geometric = pytest.importorskip("torch_geometric")
    layer = weft.nn.PyG(geometric.nn.GATConv(2, 2))  # which adds loops
    block = Graph.from_edges(torch.tensor([[0, 1], [1, 0]]), num_nodes=2).block()
    layer(block, torch.ones(2, 2))
    block.whole_rows = False
    with pytest.raises(
        InputError, match=r"GATConv needs all incoming edges of a row on one worker.*it changes the edges"
    ):
        layer(block, torch.ones(2, 2))
