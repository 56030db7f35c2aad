"""Workers on a grid: which cell of the matrix a rank holds, and who else stands in its row and column."""

from dataclasses import replace

import torch

from weft.comm.group import Group
from weft.comm.plan import spread
from weft.errors import GraphError
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.shard import Shard


def check_cell(shard: Shard, shape: tuple[int, int], rank: int) -> None:
    """Refuse a shard that is not a rank's cell of a grid of so many rows and columns."""
    if (shard.cuts, shard.grid, shard.part) != ("grid", shape, rank):
        raise GraphError(
            f"rank {rank} of a grid of {shape[0]} x {shape[1]} was given part {shard.part} of a partition by "
            f"{shard.cuts} {shard.grid or ''}; partition the graph again"
        )


def grid_groups(group: Group, shape: tuple[int, int]) -> tuple[Group, Group]:
    """Return the group of a rank's column, and that of its row, on a grid of so many rows and columns."""
    rows, columns = shape
    i, j = divmod(group.rank, columns)
    column = [group.ranks[row * columns + j] for row in range(rows)]
    return group.subgroup(column), group.subgroup(group.ranks[i * columns : (i + 1) * columns])


def on_grid(assignment: Assignment, shape: tuple[int, int]) -> Assignment:
    """Return an assignment of nodes to the cells of a grid, one a worker."""
    workers = shape[0] * shape[1]
    holder = torch.tensor(spread(assignment.num_parts, workers), dtype=torch.int32)
    parts = holder[assignment.parts.long()]
    return replace(assignment, parts=parts, num_parts=workers, cuts="grid", grid=shape)
