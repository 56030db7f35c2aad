"""PageRank (Brin and Page 1998) by power iteration."""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from weft.algorithms.base import GraphParts, algorithms, num_rows, spread, total
from weft.errors import InputError, WeftWarning
from weft.graph.graph import Graph


@algorithms.add("pagerank")
def pagerank(
    graph: Graph | GraphParts,
    *,
    damping: float = 0.85,
    tolerance: float = 1e-8,
    max_iterations: int = 100,
    personalise: Tensor | Sequence[float] | None = None,
    weighted: bool = False,
) -> Tensor:
    """Return the PageRank of every node, [N] float64, summing to 1; of `GraphParts`, of the rows held here.

    r = damping · (Aᵀ D⁻¹ r + mass of nodes without out-edges · p) + (1 - damping) · p, where p is uniform or
    the normalised `personalise`, one number per row. It stops when the mean change of a node falls below
    `tolerance`. `weighted` follows edges in proportion to their weight instead of evenly.

    >>> graph = Graph.from_edges([[1, 2, 3], [0, 0, 0]], num_nodes=4)
    >>> [round(value, 3) for value in pagerank(graph).tolist()]
    [0.542, 0.153, 0.153, 0.153]
    """
    if not 0 <= damping < 1:
        raise InputError(f"damping must lie in [0, 1), got {damping}")
    jump = _jump(graph, personalise)
    out_degree = graph.degree("out", None, weighted).double()
    weight = _weight(graph) if weighted else None
    dangling = out_degree == 0
    share = torch.where(dangling, 0.0, 1.0 / out_degree)
    rank = jump
    change = torch.inf
    for _ in range(max_iterations):
        moved = spread(graph, (rank * share)[:, None], weight)[:, 0]
        lost = total(graph, torch.where(dangling, rank, 0.0))
        after = damping * (moved + lost * jump) + (1 - damping) * jump
        change = total(graph, (after - rank).abs())
        rank = after
        if change < tolerance * graph.num_nodes:
            return rank
    _warn(change, max_iterations)
    return rank


def _weight(graph: Graph | GraphParts) -> Tensor:
    return graph.block().edge("weight").double()


def _jump(graph: Graph | GraphParts, personalise: Tensor | Sequence[float] | None) -> Tensor:
    """Return where a walker that jumps lands: a distribution over all nodes, of the rows held here."""
    n, rows = graph.num_nodes, num_rows(graph)
    if personalise is None:
        return torch.full((rows,), 1.0 / n, dtype=torch.float64, device=graph.device)
    given = torch.as_tensor(personalise, dtype=torch.float64, device=graph.device)
    fits = given.shape == (rows,) and not bool((given < 0).any())
    # What does not fit here is told here; the others, who may have what fits, must not wait for it.
    mass = total(graph, given if fits else torch.full((rows,), torch.nan, dtype=torch.float64))
    if fits and mass != mass:
        raise InputError("personalise fits here, but not on another rank")
    if not (fits and mass > 0):
        what = f"[num_nodes] = [{rows}]" if rows == n else f"[{rows}], the rows held here,"
        raise InputError(
            f"personalise must be {what} numbers >= 0, not all zero; got shape {tuple(given.shape)}"
        )
    return given / mass


def _warn(change: float, iterations: int) -> None:
    warnings.warn(
        f"pagerank still moved {change:.2g} of its mass after {iterations} iterations; "
        "raise max_iterations or tolerance",
        WeftWarning,
        stacklevel=3,
    )
