"""What the tests of loaders share."""

import threading
from typing import Any

import torch

from weft.graph import Graph
from weft.samplers import Loader, NeighborSampler


def loaded_graph(**data: Any) -> Graph:
    """Return a graph of 100 nodes with features and labels."""
    made = torch.Generator().manual_seed(0)
    edges = torch.randint(100, (2, 1500), generator=made)
    return Graph.from_edges(edges, x=torch.rand(100, 3, generator=made), y=[0, 1] * 50, **data)


def loader(threads: int = 2, **options: Any) -> Loader:
    """Return a loader of 90 seeds."""
    sampler = NeighborSampler(loaded_graph(), [4, 3], seed=7)
    return Loader(sampler, range(90), **{"batch_size": 8, "threads": threads, **options})


def running() -> list[str]:
    """Return the names of threads that prepare batches."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("weft-loader")]
