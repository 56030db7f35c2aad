"""Seeds are checked and keys are of a moment: what all samplers share."""

import pytest
import torch
from sampler_graphs import random_graph, typed_graph

from weft.errors import GraphError
from weft.samplers import NeighborSampler
from weft.samplers.base import as_seeds


def test_keys_change_with_epoch_and_hop_and_with_the_step_where_that_is_asked_for() -> None:
    graph = random_graph()
    by_epoch, by_step = (NeighborSampler(graph, [2], seed=3, resample=how) for how in ("epoch", "step"))
    assert by_epoch.key(1, 0, 0) == by_epoch.key(1, 5, 0)
    assert len({by_epoch.key(0, 0, 0), by_epoch.key(1, 0, 0), by_epoch.key(0, 0, 1)}) == 3
    assert by_step.key(1, 0, 0) != by_step.key(1, 5, 0)
    assert NeighborSampler(graph, [2], seed=4).key(1, 0, 0) != by_epoch.key(1, 0, 0)


def test_seeds_of_any_kind_become_ids() -> None:
    graph = random_graph()
    for given in ([3, 1], torch.tensor([3, 1], dtype=torch.int32), range(3, 0, -2)):
        found = as_seeds(graph, given)
        assert (found.tolist(), found.dtype) == ([3, 1], torch.int64)


@pytest.mark.parametrize("given", [[60], [-1], [0.5], [[1, 2]]])
def test_what_are_no_nodes_of_the_graph_are_refused(given: object) -> None:
    with pytest.raises(GraphError):
        NeighborSampler(random_graph(), [2]).sample(given)


def test_seeds_of_several_types_are_sorted_by_type() -> None:
    graph = typed_graph()
    assert as_seeds(graph, [0, 12, 11]).tolist() == [0, 12, 11]
    with pytest.raises(GraphError, match="sorted"):
        as_seeds(graph, [12, 0])
