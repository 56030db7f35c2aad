"""Partitioners in a child process."""

import torch

from weft.graph import Graph
from weft.partitioners import partition


def test_metis_runs_in_the_child_and_its_quality_is_measured() -> None:
    made = partition(Graph.from_edges([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]]), 2, seed=1)
    assert (made.name, made.num_parts, made.cuts, made.options["seed"]) == ("metis", 2, "nodes", 1)
    assert made.parts.dtype == torch.int32
    assert made.quality is not None
    assert (made.quality.cut_edges, made.quality.nodes) == (2, [3, 3])
