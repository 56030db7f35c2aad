"""A graph as the tables that engines join: degrees, features and edges as the graph has them."""

import pyarrow as pa
import pytest
import torch
from infer_cases import plain, sparse, stack, typed

from weft.errors import GraphError
from weft.graph import Graph
from weft.pipeline.infer import graph_tables as tables
from weft.pipeline.infer.graph_tables import edge_batches, kind_of, node_batches, stream
from weft.train.inference.stages import Chain


class Built:
    """A chain of which tables ask nothing but the type of its weights."""

    def __init__(self, graph: Graph) -> None:
        self.model = stack(graph, "sage")


def chain(graph: Graph) -> Chain:
    return Built(graph)  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "CHUNK", 16)


def test_nodes_come_with_their_degrees_and_features() -> None:
    graph = plain(edge_weight=torch.arange(500.0))
    kind = kind_of(graph, chain(graph))
    table = pa.Table.from_batches(list(node_batches(graph, kind)))
    assert table.column("node").to_pylist() == list(range(61))
    assert table.column("h").to_pylist()[5] == pytest.approx(graph.x[5].tolist())
    found = torch.tensor(table.column("degrees").to_pylist())
    assert found.shape == (61, 4), "in and out, counted and weighted"
    assert any(torch.equal(found[:, place], graph.in_degree().float()) for place in range(4))


def test_sparse_features_come_with_their_columns() -> None:
    graph = sparse()
    table = pa.Table.from_batches(list(node_batches(graph, kind_of(graph, chain(graph)))))
    dense = graph.x.to_dense()
    for node in (0, 17, 60):
        row = torch.zeros(6)
        row[table.column("slots").to_pylist()[node]] = torch.tensor(table.column("h").to_pylist()[node])
        assert torch.equal(row, dense[node])


def test_edges_are_cut_into_shards_of_their_destination() -> None:
    graph = typed()
    kind = kind_of(graph, chain(graph))
    table = stream(edge_batches(graph, kind, 4)).read_all()
    assert table.column("edge").to_pylist() == list(range(graph.num_edges))
    assert table.column("src").to_pylist() == graph.indices.tolist()
    dst = torch.repeat_interleave(graph.indptr.diff())
    assert table.column("dst").to_pylist() == dst.tolist()
    place = torch.arange(graph.num_edges) - graph.indptr[dst]
    assert table.column("shard").to_pylist() == (place // 4).tolist()
    assert table.column("relation").to_pylist() == graph.edge_type.tolist()


def test_edge_data_that_is_no_vector_is_refused() -> None:
    graph = plain(edge_attr=torch.rand(500, 2))
    assert kind_of(graph, chain(graph)).edge_data == (("attr", 2),)
    graph.edge_data["attr"] = torch.rand(500, 2, 2)
    with pytest.raises(GraphError, match=r"edge data 'attr' of shape \[500, 2, 2\]: engines pass on vectors"):
        kind_of(graph, chain(graph))
