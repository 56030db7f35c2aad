"""Accuracy over ten seeds on public splits, against the papers and against PyG with the same settings."""

import statistics
from typing import Any

import torch
import torch.nn.functional as F

import weft
from benchmarks.cases.epoch import PyGNet, torch_csr
from benchmarks.graphs import real
from benchmarks.measure import Study

SEEDS = range(10)
EPOCHS, EVERY = 40, 5  # of SAGE on wordnet30: training, and between evaluations
CITATION = {
    "gcn": {"cora": 81.5, "citeseer": 70.3, "pubmed": 79.0},
    "gat": {"cora": 83.0, "citeseer": 72.5, "pubmed": 79.0},
}
GCN = {"layers": 2, "hidden": 64, "dropout": 0.5, "lr": 0.01, "weight_decay": 5e-4, "epochs": 200}
GAT = {
    "layers": 2, "hidden": 64, "heads": 8, "attention_dropout": 0.6, "dropout": 0.6, "input_dropout": 0.6,
    "activation": "elu", "lr": 0.005, "weight_decay": 5e-4, "epochs": 300,
}  # fmt: skip
# The paper trains this one graph with other settings; its 500 validation nodes tie too often in accuracy.
PUBMED_GAT = {"out_heads": 8, "lr": 0.01, "weight_decay": 1e-3, "epochs": 200, "best_by": "loss"}


def test_accuracies(graph: weft.Graph, model: str, **settings: Any) -> list[float]:
    """Return the test accuracy in per cent at the best validation epoch, one number per seed."""
    return [100 * weft.train(graph, model, seed=seed, **settings).test_accuracy for seed in SEEDS]


def citation() -> list[str]:
    """Return the rows of GCN and GAT on the three citation graphs."""
    rows = ["| | cora | citeseer | pubmed |", "|---|---|---|---|"]
    for model, settings in (("gcn", GCN), ("gat", GAT)):
        cells = []
        for name, paper in CITATION[model].items():
            graph = real(name, symmetrise=True, normalise_features=True)
            special = PUBMED_GAT if (model, name) == ("gat", "pubmed") else {}
            found = test_accuracies(graph, model, **(settings | special))
            cells.append(f"{statistics.mean(found):.1f} ± {statistics.stdev(found):.1f} (paper {paper})")
        rows.append(f"| {model.upper()} | {' | '.join(cells)} |")
    return rows


def relational() -> list[str]:
    """Return the row of R-GCN on rdf_aifb: inverse relations, no validation set, a fixed number of epochs."""
    graph = real("rdf_aifb", symmetrise=False, inverse_relations=True, identity_features=True)
    found = test_accuracies(
        graph,
        "rgcn",
        layers=2,
        hidden=16,
        dropout=0.0,
        lr=0.01,
        epochs=50,
        restore_best=False,
    )
    mean, spread = statistics.mean(found), statistics.stdev(found)
    return [
        "| | test accuracy | paper |",
        "|---|---|---|",
        f"| R-GCN, rdf_aifb | {mean:.1f} ± {spread:.1f} | 95.8 |",
    ]


def wordnet() -> list[str]:
    """Return SAGE on wordnet30, ours and PyG's, same settings and seeds."""
    graph = real("wordnet30", symmetrise=True, normalise_features=True)
    settings: dict[str, Any] = {
        "layers": 2,
        "hidden": 128,
        "dropout": 0.3,
        "input_dropout": 0.0,
        "lr": 0.005,
        "epochs": EPOCHS,
        "eval_every": EVERY,
    }
    ours = [100 * weft.train(graph, "sage", seed=seed, **settings).test_accuracy for seed in range(3)]
    theirs = [_pyg_sage(graph, seed) for seed in range(3)]
    rows = [f"| SAGE 2 x 128, wordnet30, {EPOCHS} epochs, 3 seeds | test accuracy |", "|---|---|"]
    for name, found in (("weft", ours), ("PyG", theirs)):
        rows.append(f"| {name} | {statistics.mean(found):.2f} ± {statistics.stdev(found):.2f} |")
    return rows


def _pyg_sage(graph: weft.Graph, seed: int) -> float:
    torch.manual_seed(seed)
    # The faster of PyG's two forms of a graph, with the same sums.
    x, adjacency = graph.x.to_dense(), torch_csr(graph)
    model = PyGNet("sage", x.shape[1], graph.num_classes, dropout=0.3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    best, test = -1.0, 0.0
    for epoch in range(1, EPOCHS + 1):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, adjacency)[graph.train_mask], graph.y[graph.train_mask].long()).backward()
        optimizer.step()
        if epoch % EVERY:
            continue
        with torch.no_grad():
            right = (model.eval()(x, adjacency).argmax(1) == graph.y).float()
        val = right[graph.val_mask].mean().item()
        if val > best:
            best, test = val, right[graph.test_mask].mean().item()
    return 100 * test


CASES = [
    Study(
        "accuracy_citation", "Test accuracy at the best validation epoch, public splits, 10 seeds", citation
    ),
    Study("accuracy_rgcn", "R-GCN on rdf_aifb after a fixed 50 epochs, 10 seeds", relational),
    Study("accuracy_wordnet30", "SAGE on wordnet30 against PyG with the same settings", wordnet),
]
