"""Link prediction: learn which papers cite which, and rank citations that were held out.

    python examples/link_prediction.py [cora.npz]

Without a file it makes a small graph of communities. 5 % of the edges are for validation, 10 % for test; none
of them, nor the edges that are trained on, is a message. Each is ranked among 100 random ones.
"""

import sys

import weft

if __name__ == "__main__":
    source = {"path": sys.argv[1]} if len(sys.argv) > 1 else {"name": "community", "nodes": 2000, "seed": 1}
    graph = weft.datasets.open_dataset(**source).symmetrise()
    task = {"name": "link_prediction", "width": 64, "negatives": {"name": "uniform", "count": 4}}
    done = weft.train(graph, "gcn", task=task, hidden=64, dropout=0.0, epochs=30, eval_every=10).scores
    print(f"test MRR {done['mrr']:.3f}, hits@10 {done['hits@10']:.3f}, AUC {done['roc_auc']:.3f}")
