"""To and from PyG: nothing is lost, and the order of edges is the user's."""

from typing import Any

import pytest
import torch
from generated_graphs import assert_same, graphs, typed_graphs
from hypothesis import given, settings

from weft.errors import GraphError
from weft.graph import Graph, SparseFeatures

torch_geometric_data = pytest.importorskip("torch_geometric.data")
Data, HeteroData = torch_geometric_data.Data, torch_geometric_data.HeteroData


def assert_same_store(a: Any, b: Any) -> None:
    assert set(a.keys()) == set(b.keys())
    for name in a.keys():  # noqa: SIM118
        if isinstance(a[name], torch.Tensor):
            assert a[name].dtype == b[name].dtype, name
            assert torch.equal(a[name], b[name]), name
        else:
            assert a[name] == b[name], name


def test_data_survives_the_round_trip() -> None:
    data = Data(
        x=torch.rand(4, 3),
        edge_index=torch.tensor([[3, 0, 3, 1], [0, 3, 0, 1]]),
        edge_attr=torch.rand(4, 2),
        edge_weight=torch.rand(4),
        edge_time=torch.tensor([4, 3, 2, 1]),
        y=torch.tensor([0, 1, -1, 1]),
        train_mask=torch.tensor([True, False, False, False]),
        val_mask=torch.tensor([False, True, False, False]),
        pos=torch.rand(4, 2),
        num_nodes=4,
    )
    graph = Graph.from_pyg(data)
    assert graph.num_edges == 4
    assert graph.edge_index.tolist() == [[3, 0, 3, 1], [0, 3, 0, 1]]
    assert_same_store(data, graph.to_pyg())


def test_relations_of_a_data_survive() -> None:
    data = Data(edge_index=torch.tensor([[1, 0], [0, 1]]), edge_type=torch.tensor([2, 0]), num_nodes=2)
    graph = Graph.from_pyg(data)
    assert graph.num_relations == 3
    again = graph.to_pyg()
    assert torch.equal(again.edge_type, data.edge_type)
    assert again.num_relations == 3


def test_times_of_edges_are_told_from_times_of_nodes() -> None:
    edges = torch.tensor([[0, 1, 1], [1, 0, 1]])
    of_edges = Graph.from_pyg(Data(edge_index=edges, time=torch.tensor([1, 2, 3]), num_nodes=2))
    assert of_edges.given_edge_data()["time"].tolist() == [1, 2, 3]
    of_nodes = Graph.from_pyg(Data(edge_index=edges, time=torch.tensor([1, 2]), num_nodes=2))
    assert of_nodes.node_data["node"]["time"].tolist() == [1, 2]


def test_sparse_features_stay_sparse_on_the_way() -> None:
    x = torch.eye(3).to_sparse_csr()
    graph = Graph.from_pyg(Data(x=x, edge_index=torch.tensor([[0], [1]])))
    assert isinstance(graph.x, SparseFeatures)
    assert torch.equal(graph.to_pyg().x.to_dense(), torch.eye(3))


def hetero() -> Any:
    data = HeteroData()
    data["author"].num_nodes = 2
    data["paper"].x = torch.rand(3, 4)
    data["paper"].y = torch.tensor([0, 1, 1])
    data["paper"].train_mask = torch.tensor([True, False, True])
    data["venue"].x = torch.rand(1, 2)
    data["author", "writes", "paper"].edge_index = torch.tensor([[1, 0, 1], [0, 2, 2]])
    data["author", "writes", "paper"].edge_attr = torch.rand(3, 2)
    data["author", "writes", "paper"].time = torch.tensor([3, 2, 1])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[2, 0], [0, 1]])
    data["paper", "cites", "paper"].edge_attr = torch.rand(2, 5)
    data["paper", "cites", "paper"].edge_weight = torch.rand(2)
    data["paper", "in", "venue"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    return data


def test_heterodata_survives_the_round_trip() -> None:
    data = hetero()
    graph = Graph.from_pyg(data)
    again = graph.to_pyg()
    assert (again.node_types, again.edge_types) == (data.node_types, data.edge_types)
    for kind in data.edge_types:
        assert_same_store(data[kind], again[kind])
    for kind in data.node_types:
        data[kind].num_nodes = data[kind].num_nodes  # PyG leaves it to be counted where there are features
        assert_same_store(data[kind], again[kind])
    assert (graph.target_type, graph.num_classes) == ("paper", 2)


def test_pygs_own_aggregation_gives_the_same() -> None:
    from torch_geometric.nn import SimpleConv

    data = Data(x=torch.rand(6, 3), edge_index=torch.randint(0, 6, (2, 20)))
    block = Graph.from_pyg(data).block()
    for reduce in ("sum", "mean", "max"):
        plain = SimpleConv(aggr=reduce)(data.x, data.edge_index)
        assert torch.allclose(block.aggregate(data.x, reduce), plain, atol=1e-6)


def test_what_is_not_a_pyg_graph_is_refused() -> None:
    with pytest.raises(GraphError, match="expected a PyG Data or HeteroData, got dict"):
        Graph.from_pyg({"edge_index": 1})
    with pytest.raises(GraphError, match="the Data has no edge_index"):
        Graph.from_pyg(Data(x=torch.rand(2, 2)))
    with pytest.raises(GraphError, match=r"train_mask has shape \(3, 10\): several splits"):
        Graph.from_pyg(
            Data(train_mask=torch.ones(3, 10, dtype=torch.bool), edge_index=torch.tensor([[0], [2]]))
        )


@settings(deadline=None, max_examples=60)
@given(graph=graphs())
def test_any_graph_survives_the_round_trip(graph: Graph) -> None:
    assert_same(Graph.from_pyg(graph.to_pyg()), graph)


@settings(deadline=None, max_examples=60)
@given(graph=typed_graphs())
def test_any_typed_graph_survives_the_round_trip(graph: Graph) -> None:
    assert_same(Graph.from_pyg(graph.to_pyg()), graph)
