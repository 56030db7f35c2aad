"""Workers on a grid: parts are dealt to cells, and a cell of another grid is refused."""

import pytest
import torch

from weft.errors import GraphError
from weft.graph import Graph
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.shard import make_shards
from weft.strategies.cells import check_cell, on_grid

GRAPH = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 0]])


def test_parts_are_dealt_to_the_cells_in_runs() -> None:
    made = on_grid(Assignment(torch.tensor([0, 1, 2, 3, 4, 5]).int(), 6, name="hash"), (1, 3))
    assert (made.num_parts, made.cuts, made.grid, made.name) == (3, "grid", (1, 3), "hash")
    assert made.parts.tolist() == [0, 0, 1, 1, 2, 2]


def test_a_rank_takes_its_own_cell_of_its_own_grid_alone() -> None:
    parts = Assignment(torch.tensor([0, 1, 2, 3]).int(), 4)
    shards = make_shards(GRAPH, on_grid(parts, (2, 2)))
    check_cell(shards[3], (2, 2), 3)
    for shape, rank in (((2, 2), 0), ((4, 1), 3)):
        with pytest.raises(
            GraphError, match=f"rank {rank} of a grid of {shape[0]} x {shape[1]} was given part 3"
        ):
            check_cell(shards[3], shape, rank)
    with pytest.raises(GraphError, match="part 1 of a partition by nodes"):
        check_cell(make_shards(GRAPH, parts)[1], (2, 2), 1)
