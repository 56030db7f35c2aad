"""An unmodified PyG model, in PyG's own loop, with batches from weft: the one changed line makes the loader.

Run: python examples/pyg_model.py [nodes]
"""

import sys
import time

import torch
import torch.nn.functional as F
import torch_geometric as pyg

import weft
from weft.samplers import Batch, Loader, NeighborSampler

nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
graph = weft.datasets.open_dataset(
    name="community", nodes=nodes, degree=15
)  # yours: weft.Graph.from_pyg(data)
data = graph.to_pyg()

torch.manual_seed(0)
model = pyg.nn.GraphSAGE(graph.x.shape[1], 64, num_layers=2, out_channels=graph.num_classes)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

# loader = pyg.loader.NeighborLoader(data, [10, 5], data.train_mask, batch_size=1024, shuffle=True)
loader = Loader(NeighborSampler(graph, [10, 5], expand="once"), batch_size=1024, convert=Batch.to_pyg)

for epoch in range(5):
    start = time.perf_counter()
    for batch in loader:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: {time.perf_counter() - start:.2f} s")

model.eval()
with torch.no_grad():
    right = model(data.x, data.edge_index).argmax(1) == data.y
print(f"test accuracy {float(right[data.test_mask].float().mean()):.3f}")
