"""Data of PyG that the tests of links share."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

WRITES = ("author", "writes", "paper")


def plain(nodes: int = 40) -> Data:
    """Return a graph of one type."""
    made = torch.Generator().manual_seed(0)
    src, dst = torch.randint(nodes, (2, 120), generator=made)
    edges = torch.stack([torch.cat([src, dst]), torch.cat([dst, src])])[
        :, torch.randperm(240, generator=made)
    ]
    return Data(x=torch.rand(nodes, 3, generator=made), edge_index=edges, edge_time=torch.arange(240) % 50)


def typed() -> HeteroData:
    """Return a graph of authors and papers."""
    made, data = torch.Generator().manual_seed(1), HeteroData()
    data["author"].x, data["paper"].x = torch.rand(12, 3, generator=made), torch.rand(20, 3, generator=made)
    writes = torch.stack([torch.randint(12, (60,), generator=made), torch.randint(20, (60,), generator=made)])
    data[WRITES].edge_index = writes
    data["paper", "by", "author"].edge_index = writes.flip(0)[:, torch.randperm(60, generator=made)]
    data["paper", "cites", "paper"].edge_index = torch.randint(20, (2, 30), generator=made)
    return data


def fields(data: Any) -> dict[tuple[Any, str], Tensor]:
    """Return what a batch says of links, by store and name."""
    words = ("label", "input_id", "src_index", "dst_", "seed_time", "batch_size")
    return {
        (store._key if hasattr(store, "_key") else None, name): value
        for store in data.stores
        for name, value in store.items()
        if any(word in name for word in words)
    }
