"""PyG's own GAT, in PyG's own loop, before and after one line.

Run: python examples/accelerate_pyg.py [nodes]
"""

import copy
import sys
import time

import torch
import torch.nn.functional as F
import torch_geometric as pyg

import weft


def seconds_a_step(model: torch.nn.Module, data: pyg.data.Data, steps: int = 5) -> float:
    """Return the mean time of a training step, after three to warm up."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    start = 0.0
    for step in range(steps + 3):
        start = time.perf_counter() if step == 3 else start
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
    return (time.perf_counter() - start) / steps


if __name__ == "__main__":
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    graph = weft.datasets.open_dataset(name="community", nodes=nodes)
    data = graph.to_pyg()
    model = pyg.nn.GAT(graph.x.shape[1], 64, num_layers=2, out_channels=graph.num_classes, heads=8)
    faster = weft.accelerate(copy.deepcopy(model))
    plain, ours = seconds_a_step(model, data), seconds_a_step(faster, data)
    print(f"{plain * 1e3:.0f} ms a step as it is, {ours * 1e3:.0f} ms accelerated: {plain / ours:.1f}x")
