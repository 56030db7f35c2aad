"""Which relations have all their edges in both directions, where several workers hold the graph."""

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.graph.ends import edge_ends
from weft.graph.views import EdgeView
from weft.samplers.workers.row_requests import LABEL, RowRequests

CHUNK = 1 << 20
"""Edges that a worker asks about at once."""


def mirrored_on_workers(graph: EdgeView, owner: Tensor, group: Group) -> Tensor:
    """Return what `weft.graph.ends.mirrored` does of the whole graph, [R] bool; all members call it.

    `graph` are the edges held here, `owner` [N] is the member that owns each node.
    The edge the other way lies with the owner of the source: only edges from others' nodes are asked about.
    """
    src, dst, kinds = edge_ends(graph)
    there = torch.unique(src * graph.num_nodes + dst)
    near = owner[src] == group.rank
    alone = torch.zeros(graph.num_relations, dtype=torch.int64)
    alone += _alone(kinds[near], torch.isin((dst * graph.num_nodes + src)[near], there), len(alone))
    src, dst, kinds = (each[~near] for each in (src, dst, kinds))
    # Rounds are those of the worker with the most edges: a request is a collective, also of nothing.
    most = int(group.all_reduce(torch.tensor(len(src)), "max", label=LABEL).wait())
    for first in range(0, most, CHUNK):
        part = slice(first, first + CHUNK)
        requests = RowRequests(owner, group)
        requests.add(src[part], dst[part])
        wanted = torch.cat(requests.told(0)) * graph.num_nodes + torch.cat(requests.ids)
        alone += _alone(kinds[part], requests.fixed(torch.isin(wanted, there)), len(alone))
    return group.all_reduce(alone, label=LABEL).wait() == 0


def _alone(kinds: Tensor, has_reverse: Tensor, relations: int) -> Tensor:
    return torch.bincount(kinds[~has_reverse], minlength=relations)
