"""What of a graph goes to a GPU, by what is free there."""

from typing import Any

import pytest
import torch
from halo_jobs import graph_of
from torch import Tensor, nn

from weft.graph.graph import Graph
from weft.graph.sparse import SparseFeatures
from weft.stores.cached import CachedStore
from weft.strategies import placement
from weft.strategies.placement import Nearby, with_near_data, with_near_edges

HERE = torch.device("cpu")


def free(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(placement, "free_bytes", lambda device: count)


@pytest.mark.parametrize("kind", ["typed", "sparse"])
def test_features_that_do_not_fit_and_are_no_matrix_come_with_the_batches(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(kind)
    free(monkeypatch, 1 << 20)
    assert isinstance(with_near_data(graph, HERE), Graph)
    free(monkeypatch, 100)
    assert with_near_data(graph, HERE) is None


def test_a_matrix_that_does_not_fit_is_read_from_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 480)
    found = with_near_data(graph_of("directed"), HERE)
    assert found is not None
    assert isinstance(found.x, CachedStore)
    assert found.x.capacity == 10  # of 24 bytes each, in half of what is free


def test_edges_do_not_take_features_along_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of("sparse")
    assert isinstance(graph.x, SparseFeatures)
    edges = graph.indptr.nbytes + 2 * graph.indices.nbytes + 4 * graph.num_nodes
    free(monkeypatch, 2 * edges)
    assert with_near_edges(graph, HERE) is None
    free(monkeypatch, 2 * (edges + graph.x.values.nbytes))
    assert with_near_edges(graph, HERE) is not None


class Own(nn.Module):
    """A model of no known layers, which cannot be run chunk by chunk."""

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        out: Tensor = blocks[0].aggregate(x, "mean")
        return out


def test_the_graph_of_exact_passes_is_kept_there_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, model, clock = graph_of("directed"), Own(), torch.zeros(3, dtype=torch.int64)
    moved, move = [], Graph.to
    nearby = Nearby(graph, HERE)

    def to(self: Graph, **given: Any) -> Graph:
        moved.append(given)
        return move(self, **given)

    monkeypatch.setattr(Graph, "to", to)
    expected = graph.block().aggregate(graph.x, "mean")
    for room, copies in ((1 << 20, 1), (100, 3)):  # in little memory there is a copy for each pass
        free(monkeypatch, room)
        nearby._whole = None
        moved.clear()
        for _ in range(3):
            assert torch.equal(nearby.outputs(model, clock, None), expected)
        assert len(moved) == copies
        assert nearby.graph.block().clock is None
