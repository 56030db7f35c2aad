"""Batches as PyG's data: counts of hops, types by name, sparse features."""

import pytest
import torch
from sampler_graphs import AUTHOR, CITES, random_graph, typed_graph

from weft.graph import SparseFeatures
from weft.samplers import NeighborSampler


def test_pyg_gets_one_graph_with_counts_of_hops() -> None:
    pytest.importorskip("torch_geometric")
    from torch_geometric.utils import trim_to_layer

    graph = random_graph(x=torch.rand(60, 5), y=[0, 1, 2] * 20)
    seeds = torch.arange(0, 60, 7)
    data = NeighborSampler(graph, [4, 3]).sample(seeds).to_pyg()
    assert data.batch_size == len(seeds)
    assert torch.equal(data.n_id[: len(seeds)], seeds)
    assert torch.equal(data.x, graph.x[data.n_id])
    assert torch.equal(data.n_id[data.edge_index], graph.edge_index[:, data.e_id])
    assert sum(data.num_sampled_nodes) == data.num_nodes
    assert sum(data.num_sampled_edges) == data.edge_index.shape[1]
    x, edge_index, _ = trim_to_layer(
        1, data.num_sampled_nodes, data.num_sampled_edges, data.x, data.edge_index
    )
    assert edge_index.max() < x.shape[0]
    batch = NeighborSampler(graph, [4, 3], expand="once").sample(seeds)
    assert torch.equal(batch.to_pyg().edge_index, batch.blocks[0].edge_index())


def test_pyg_models_run_on_batches_of_sparse_features() -> None:
    pyg = pytest.importorskip("torch_geometric")
    dense = torch.rand(60, 5) * (torch.rand(60, 5) < 0.3)
    graph = random_graph(x=SparseFeatures.from_dense(dense), y=[0, 1, 2] * 20)
    data = NeighborSampler(graph, [4, 3]).sample(torch.arange(0, 60, 7)).to_pyg()
    assert torch.equal(data.x, dense[data.n_id])
    model = pyg.nn.GraphSAGE(5, 8, num_layers=2, out_channels=3)
    model(data.x, data.edge_index).sum().backward()


def test_pyg_gets_types_by_name() -> None:
    pytest.importorskip("torch_geometric")
    graph = typed_graph()
    data = NeighborSampler(graph, [2, 2]).sample(torch.arange(10, 16)).to_pyg()
    whole = graph.to_pyg()
    assert data["paper"].batch_size == 6
    assert data["paper"].n_id[:6].tolist() == list(range(6))
    assert torch.equal(data["author"].x, whole["author"].x[data["author"].n_id])
    for source, relation, target in (AUTHOR, CITES):
        store, full = data[source, relation, target], whole[source, relation, target]
        ends = torch.stack([data[source].n_id[store.edge_index[0]], data[target].n_id[store.edge_index[1]]])
        assert torch.equal(ends, full.edge_index[:, store.e_id])
        assert sum(store.num_sampled_edges) == store.edge_index.shape[1]
