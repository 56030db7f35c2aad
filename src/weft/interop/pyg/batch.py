"""A batch as PyG's loaders give it: one graph of the seeds' neighbourhood, in order of hops."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weft.graph.sparse import Features, SparseFeatures
from weft.registry import require

if TYPE_CHECKING:
    Batch = Any  # of a whole graph, which has more than what is held of others

_EDGE = {"weight": "edge_weight", "attr": "edge_attr", "time": "edge_time"}


def data_of(batch: "Batch") -> Any:
    """Return a `Data` for a plain graph and a `HeteroData` for one with named types."""
    require("torch_geometric", "pyg")
    return _plain(batch) if batch.graph.is_plain else _hetero(batch)


def _plain(batch: "Batch") -> Any:
    from torch_geometric.data import Data

    graph, block = batch.graph, batch.blocks[0]
    assert batch.hop_sizes is not None
    nodes, edges = batch.hop_sizes
    data = Data(edge_index=block.edge_index(), num_nodes=batch.num_nodes)
    if batch.x is not None:
        data.x = _tensor(batch.x)
    if graph.y is not None:
        data.y = graph.y[batch.nodes]
    for name in graph.edge_data:
        data[_EDGE.get(name, name)] = block.edge(name)
    if block.edge_type is not None:
        data.edge_type = block.edge_type.long()
    data.n_id, data.e_id = batch.nodes, graph.edge_ids[block.edge_ids].long()
    data.batch_size = batch.seeds.numel()
    data.num_sampled_nodes, data.num_sampled_edges = list(nodes), list(edges)
    if batch.seed_of is not None:
        data.batch = batch.seed_of
    return data


def _hetero(batch: "Batch") -> Any:
    from torch_geometric.data import HeteroData

    data, graph = HeteroData(), batch.graph
    assert batch.hop_sizes is not None
    nodes, edges = batch.hop_sizes
    kinds = torch.bucketize(batch.nodes, torch.tensor(graph.node_offsets[1:-1]), right=True)
    place = torch.empty_like(batch.nodes)  # of each row among those of its type
    for number, kind in enumerate(graph.node_types):
        rows = (kinds == number).nonzero().flatten()
        place[rows] = torch.arange(rows.numel())
        _add_nodes(data[kind], batch, kind, rows)
        data[kind].num_sampled_nodes = _split_counts(kinds == number, nodes)
        if kind == graph.target_type:
            data[kind].batch_size = batch.seeds.numel()
    _add_edges(data, batch, place, edges)
    return data


def _add_nodes(store: Any, batch: "Batch", kind: str, rows: Tensor) -> None:
    graph = batch.graph
    local = batch.nodes[rows] - graph.rows_of_type(kind).start
    store.n_id, store.num_nodes = local, rows.numel()
    if kind in batch.x:
        store.x = _tensor(batch.x[kind])
    if "y" in graph.node_data[kind]:
        store.y = graph.node_data[kind]["y"][local]
    if batch.seed_of is not None:
        store.batch = batch.seed_of[rows]


def _add_edges(data: Any, batch: "Batch", place: Tensor, sizes: list[int]) -> None:
    graph, block = batch.graph, batch.blocks[0]
    edge_index, given = place[block.edge_index()], graph.edge_ids[block.edge_ids].long()
    kinds = torch.zeros(block.num_edges) if block.edge_type is None else block.edge_type
    whole = graph.given_edge_type()
    for relation, edge_kind in enumerate(graph.edge_types):
        chosen = kinds == relation
        store = data[edge_kind]
        store.edge_index = edge_index[:, chosen]
        # The user's number of an edge within its relation.
        store.e_id = given[chosen] if whole is None else _rank_within(whole == relation)[given[chosen]]
        store.num_sampled_edges = _split_counts(chosen, sizes)
        for name in graph.edge_data:
            store[_EDGE.get(name, name) if name != "time" else name] = block.edge(name)[chosen]


def _rank_within(mask: Tensor) -> Tensor:
    return mask.long().cumsum(0) - 1


def _split_counts(mask: Tensor, sizes: list[int]) -> list[int]:
    return [int(part.sum()) for part in torch.split(mask, sizes)]


def _tensor(value: Features) -> Tensor:
    # PyG's convolutions take rows by index_select, which no sparse layout has; a batch is small enough.
    return value.to_dense() if isinstance(value, SparseFeatures) else value
