"""METIS: what it is given, and what it gives on real graphs."""

from pathlib import Path

import pytest
import torch

from weft.datasets import open_dataset
from weft.graph import Graph
from weft.partitioners.base import undirected
from weft.partitioners.metis import MetisPartitioner
from weft.partitioners.quality import measure

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def test_it_is_given_both_directions_once_without_loops() -> None:
    near = undirected(Graph.from_edges([[0, 0, 1, 1, 2, 3], [0, 1, 0, 2, 2, 0]], num_nodes=5))
    assert near.indptr.tolist() == [0, 2, 4, 5, 6, 6]
    assert near.indices.tolist() == [1, 3, 0, 2, 1, 0]


@pytest.mark.parametrize("objective", ["cut", "volume"])
def test_a_real_graph_is_cut_little_and_evenly(objective: str) -> None:
    graph = real_graph("cora.npz")
    parts = MetisPartitioner(objective=objective).assign(graph, 4)  # type: ignore[arg-type]
    quality = measure(graph, parts, 4)
    assert quality.cut_share < 0.12
    assert max(quality.balance[name] for name in ("nodes", "edges", "train_nodes")) < 1.25


@pytest.mark.slow
def test_a_large_directed_graph_is_cut_little() -> None:
    graph = real_graph("web_google.npz")
    quality = measure(graph, MetisPartitioner(tries=1).assign(graph, 8), 8)
    assert quality.halo_rows < 45_000
    assert quality.balance["nodes"] < 1.05


def real_graph(name: str) -> Graph:
    if not (DATA / name).is_file():
        pytest.skip(f"{DATA / name} is not there")
    graph = open_dataset(DATA / name)
    assert torch.is_tensor(graph.indptr)
    return graph
