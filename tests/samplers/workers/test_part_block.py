"""What a member knows of the rows and edges of a batch, as blocks ask for it."""

import pytest
import torch

from weft.errors import GraphError
from weft.graph.degrees import Degrees, RowDegrees
from weft.samplers.workers.part_block import BatchDegrees, ByEdge


def test_values_of_edges_are_found_by_id_in_any_order() -> None:
    ids = torch.tensor([9, 3, 5])
    held = ByEdge(ids, torch.tensor([90.0, 30.0, 50.0]))
    assert held[ids] is held.values
    assert held[torch.tensor([5, 9, 9])].tolist() == [50.0, 90.0, 90.0]


def test_degrees_as_seeds_see_them_are_those_of_the_first_rows() -> None:
    degrees = Degrees(*(RowDegrees(torch.arange(4), None, None, None, None, None) for _ in range(2)))
    assert BatchDegrees(degrees).seen(2) is None
    all_at_once = BatchDegrees(degrees, {None: torch.tensor([5, 6, 7, 8])}).seen(2)
    assert all_at_once is not None
    assert all_at_once(None).tolist() == all_at_once(0).tolist() == [5, 6]
    with pytest.raises(GraphError, match="degrees by relation need a fanout by relation"):
        all_at_once(1)
