"""Link prediction: learn which papers cite which, on sampled neighbourhoods, and rank unseen citations.

    python examples/link_prediction.py [cora.npz]

Without a file it makes a small graph of communities. Prints the mean reciprocal rank of held-out edges among
100 random ones.
"""

import sys

import torch
import torch.nn.functional as F
from torch import Tensor

import weft
from weft.samplers import EdgeLoader, NegativeSampler, NeighborSampler, split_edges
from weft.tasks.ranking import hits, mrr, roc_auc


def score(h: Tensor, edges: Tensor, negative: Tensor) -> Tensor:
    """Return the scores of edges (2, n), and beside each those of its negatives: [n, 1 + count]."""
    ends = torch.cat([edges[1][:, None], negative], dim=1)
    return (h[edges[0]][:, None] * h[ends]).sum(-1)


if __name__ == "__main__":
    source = {"path": sys.argv[1]} if len(sys.argv) > 1 else {"name": "community", "nodes": 2000, "seed": 1}
    graph, val, test = split_edges(weft.datasets.open_dataset(**source).symmetrise(), val=0.05, test=0.1)
    torch.manual_seed(0)
    model = weft.nn.Stack(graph.x.shape[1], 64, layer="sage", layers=2, hidden=64, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    loader = EdgeLoader(NeighborSampler(graph, [10, 10]), NegativeSampler(graph, 4), batch_size=2048)
    for epoch in range(5):
        total = 0.0
        for batch in loader:
            h = model(batch.blocks, batch.x)
            positive = (h[batch.src] * h[batch.dst]).sum(-1)
            negative = (h[batch.src][:, None] * h[batch.negative]).sum(-1)
            loss = F.softplus(-positive).mean() + F.softplus(negative).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    h = weft.infer(model, graph).tensor()  # every node once, all its edges
    negatives = NegativeSampler(graph, 100, seed=1).draw(torch.arange(test.shape[1]), test[0], test[1])
    scores = score(h, test, negatives)
    print(f"test MRR {mrr(scores):.3f}, hits@10 {hits(10)(scores):.3f}, AUC {roc_auc(scores):.3f}")
