"""Relations without times in a graph whose other edges have them: when messages along these may be seen.

The times of such a relation are filled with 0, which says nothing. What holds the edges of timed relations
the other way would show them before they came; what is no reverse of anything has always been there.
"""

import warnings
from dataclasses import replace

import torch
from torch import Tensor

from weft.errors import DataNote
from weft.graph.ends import edge_ends
from weft.graph.graph import Graph


def with_all_times(graph: Graph, key: str) -> Graph:
    """Return the graph in which every edge has a time `key` that lets nothing flow back.

    A relation without times whose edges all are timed edges the other way has theirs: the last one, where
    several copies have different ones. Others are as early as the first edge.
    """
    widths = graph.edge_columns.get(key, [])
    if graph.edge_type is None or None not in widths or graph.edge_data[key].dim() != 1:
        return graph
    kinds, time = graph.edge_type.long(), graph.edge_data[key].clone()
    timed = torch.tensor([width is not None for width in widths])
    partner, last = _times_the_other_way(graph, timed[kinds], time)
    alone = torch.bincount(kinds[~partner], minlength=len(widths)) > 0
    reverse = ~timed & ~alone & (torch.bincount(kinds, minlength=len(widths)) > 0)
    of_reverse = reverse[kinds]
    time[~timed[kinds]] = time[timed[kinds]].min() if bool(timed[kinds].any()) else 0
    time[of_reverse] = last[of_reverse]
    names = [" ".join(graph.edge_types[number]) for number in reverse.nonzero().flatten().tolist()]
    if names:
        warnings.warn(
            f"{', '.join(map(repr, names))}: no edge data {key!r}, and all edges are those of other "
            "relations the other way: they came when these did",
            DataNote,
            stacklevel=3,
        )
    columns = [0 if bool(is_reverse) else width for width, is_reverse in zip(widths, reverse)]
    return Graph(
        replace(
            graph.parts(),
            edge_data={**graph.edge_data, key: time},
            edge_columns={**graph.edge_columns, key: columns},
        )
    )


def _times_the_other_way(graph: Graph, timed: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """Return which edges are timed ones the other way, [E] bool, and the last time of these, [E]."""
    src, dst, _ = edge_ends(graph)
    ways, place = torch.unique((src * graph.num_nodes + dst)[timed], return_inverse=True)
    last = torch.full((len(ways) + 1,), _least(time.dtype), dtype=time.dtype)
    last.scatter_reduce_(0, place, time[timed], "amax")
    back = dst * graph.num_nodes + src
    at = torch.searchsorted(ways, back)
    there = torch.cat([ways, ways.new_full((1,), -1)])[at] == back
    return there, last[at]


def _least(dtype: torch.dtype) -> float | int:
    return torch.finfo(dtype).min if dtype.is_floating_point else torch.iinfo(dtype).min
