"""KaMinPar: the file it reads, weights included."""

from pathlib import Path

import numpy as np
import pytest

from weft.graph import Graph
from weft.partitioners.base import undirected
from weft.partitioners.kaminpar import write_parhip

kaminpar = pytest.importorskip("kaminpar", reason="kaminpar is not installed: pip install 'weft[kaminpar]'")

PATH = Graph.from_edges([[0, 1, 2], [1, 2, 3]], num_nodes=5)


@pytest.mark.parametrize("weight", [None, np.array([5, 1, 1, 1, 7])])
def test_the_library_reads_the_graph_that_was_written(tmp_path: Path, weight: np.ndarray | None) -> None:
    write_parhip(tmp_path / "graph", undirected(PATH), weight)
    graph = kaminpar.load_graph(str(tmp_path / "graph"), kaminpar.GraphFileFormat.PARHIP)
    assert (graph.n(), graph.m()) == (5, 6)
    assert [sorted(to for to, _ in graph.neighbors(node)) for node in range(5)] == [
        [1],
        [0, 2],
        [1, 3],
        [2],
        [],
    ]
    assert graph.is_node_weighted() == (weight is not None)
    if weight is not None:
        assert [graph.node_weight(node) for node in range(5)] == weight.tolist()
