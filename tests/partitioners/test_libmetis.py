"""METIS by its library."""

import pytest
from typed_communities import typed_graph

from weft.partitioners import libmetis
from weft.partitioners.constraints import constraints
from weft.partitioners.metis import MetisPartitioner


def test_where_pymetis_hides_the_library_one_weight_and_moves_keep_the_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(libmetis, "library", lambda: None)
    graph = typed_graph(0)
    found = MetisPartitioner(imbalance=0.05).assign(graph, 4)
    assert constraints(graph, 4, 0.05).broken(found.numpy()) == []
