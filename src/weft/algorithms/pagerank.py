"""PageRank (Brin and Page 1998) by power iteration."""

import warnings
from typing import Any

import torch
from torch import Tensor

from weft.errors import InputError, WeftWarning
from weft.graph.graph import Graph


def pagerank(
    graph: Graph,
    *,
    damping: float = 0.85,
    tolerance: float = 1e-8,
    max_iterations: int = 100,
    personalise: Any = None,
    weighted: bool = False,
) -> Tensor:
    """Return the PageRank of every node, [N] float64, summing to 1.

    r = damping · (Aᵀ D⁻¹ r + mass of nodes without out-edges · p) + (1 - damping) · p, where p is uniform or
    the normalised `personalise` [N]. It stops when the mean change of a node falls below `tolerance`.
    `weighted` follows edges in proportion to their weight instead of evenly.

    >>> graph = Graph.from_edges([[1, 2, 3], [0, 0, 0]], num_nodes=4)
    >>> [round(value, 3) for value in pagerank(graph).tolist()]
    [0.542, 0.153, 0.153, 0.153]
    """
    if not 0 <= damping < 1:
        raise InputError(f"damping must lie in [0, 1), got {damping}")
    block = graph.block()
    jump = _jump(graph, personalise)
    out_degree = graph.out_degree(weighted=weighted).double()
    weight = block.edge("weight").double() if weighted else None
    dangling = out_degree == 0
    share = torch.where(dangling, 0.0, 1.0 / out_degree)
    rank = jump
    change = torch.inf
    for _ in range(max_iterations):
        moved = block.aggregate((rank * share)[:, None], "sum", weight)[:, 0]
        after = damping * (moved + rank[dangling].sum() * jump) + (1 - damping) * jump
        change = float((after - rank).abs().sum())
        rank = after
        if change < tolerance * graph.num_nodes:
            return rank
    _warn(change, max_iterations)
    return rank


def _jump(graph: Graph, personalise: Any) -> Tensor:
    """Return where a walker that jumps lands: a distribution over all nodes."""
    n = graph.num_nodes
    if personalise is None:
        return torch.full((n,), 1.0 / n, dtype=torch.float64, device=graph.device)
    given = torch.as_tensor(personalise, dtype=torch.float64, device=graph.device)
    total = float(given.sum())
    if given.shape != (n,) or not total > 0 or bool((given < 0).any()):
        raise InputError(
            f"personalise must be [num_nodes] = [{n}] numbers >= 0, not all zero; "
            f"got shape {tuple(given.shape)}"
        )
    return given / total


def _warn(change: float, iterations: int) -> None:
    warnings.warn(
        f"pagerank still moved {change:.2g} of its mass after {iterations} iterations; "
        "raise max_iterations or tolerance",
        WeftWarning,
        stacklevel=3,
    )
