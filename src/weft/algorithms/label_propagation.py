"""Label propagation (Zhou et al. 2003): labels spread along edges, known ones poured in at every step."""

import torch
from torch import Tensor

from weft.algorithms.base import GraphParts, algorithms, num_rows, spread
from weft.errors import GraphError, InputError
from weft.graph.graph import Graph


@algorithms.add("label_propagation")
def label_propagation(
    graph: Graph | GraphParts, *, iterations: int = 50, alpha: float = 0.9, mask: Tensor | None = None
) -> Tensor:
    """Return the score of each class for every node of the labelled type, [n, C]; argmax is the prediction.

    Y ← alpha · S Y + (1 - alpha) · Y₀ with S = D⁻½ A D⁻½, where Y₀ holds the labels of the nodes in `mask`
    (the training nodes, unless given) and zeros elsewhere. Nodes that no label reaches keep zeros. Of
    `GraphParts`, nodes are those that are held here.
    """
    if graph.y is None:
        raise GraphError("label propagation needs labels, and the graph has none; pass y")
    if not 0 <= alpha <= 1:
        raise InputError(f"alpha must lie in [0, 1], got {alpha}")
    mask = graph.train_mask if mask is None else mask
    if mask is None:
        raise GraphError("label propagation needs to know which labels it may use; pass mask or train_mask")
    known = _known_labels(graph, mask)
    src_scale, dst_scale = (_inverse_root(graph.degree(way, None, False)) for way in ("out", "in"))
    scores = known
    for _ in range(iterations):
        reached = dst_scale[:, None] * spread(graph, src_scale[:, None] * scores)
        scores = alpha * reached + (1 - alpha) * known
    return scores[graph.target_rows]


def _known_labels(graph: Graph | GraphParts, mask: Tensor) -> Tensor:
    """Return Y₀ over all nodes of all types, [N, C]."""
    y = graph.y
    assert y is not None
    if mask.dtype != torch.bool or mask.shape != y.shape[:1]:
        raise InputError(
            f"mask must be boolean of shape ({y.shape[0]},), got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    labels = torch.zeros(y.shape[0], graph.num_classes, device=graph.device)
    if graph.multilabel:
        labels[mask] = y[mask].float()
    else:
        rows = (mask & (y >= 0)).nonzero()[:, 0]
        labels[rows, y[rows]] = 1.0
    known = torch.zeros(num_rows(graph), graph.num_classes, device=graph.device)
    known[graph.target_rows] = labels
    return known


def _inverse_root(degree: Tensor) -> Tensor:
    return torch.where(degree > 0, degree.clamp(min=1e-12).rsqrt(), 0.0)
