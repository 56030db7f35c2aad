"""What ranks do in the tests of batches of pairs: importable by name, so that other processes find it."""

from typing import Any

import torch
from halo_jobs import graph_of, local_graph
from sampled_jobs import differing, important_of, timed_graph
from torch import Tensor

from weft.comm.group import Group
from weft.errors import GraphError, InputError
from weft.graph.graph import Graph
from weft.samplers import NeighborSampler
from weft.samplers.base import Batch
from weft.samplers.core.hidden import Ends
from weft.samplers.workers.partitioned import PartitionedSampler
from weft.samplers.workers.replicas import Replicate, with_replicas

OWN = {("paper", "cites", "paper"): 2, ("author", "writes", "paper"): 3}
OWN |= {("venue", "holds", "paper"): 1, ("paper", "of", "author"): -1}
# Graph, fanout, options of the sampler.
CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("directed", [3, 2], {}),
    ("directed", [-1, -1], {}),
    ("hub", [5, 2], {"resample": "step"}),
    ("hub", [-1, 3], {"weight": "weight"}),
    ("hub", [3, 2], {"weight": "weight", "pick": "top"}),
    ("isolated", [2, 2, 2], {"replace": True}),
    ("typed", [2, -1], {}),
    ("typed", [OWN, OWN], {}),
    ("relations", [-1, 2], {}),
    ("relations", [2, 2], {"weight": "weight"}),
    ("timed", [3, 2], {"temporal": True}),
    ("timed typed", [OWN, 2], {"temporal": True}),
]


def pair_graph(kind: str) -> Graph:
    """Return a graph of 36 nodes; that of relations has weights, both directions and parallel edges."""
    if kind != "relations":
        return {"timed": lambda: timed_graph("hub"), "timed typed": lambda: timed_graph("typed")}.get(
            kind, lambda: graph_of(kind)
        )()
    made = torch.Generator().manual_seed(1)
    edges = torch.randint(36, (2, 110), generator=made)
    edges = torch.cat([edges, edges[:, :15], torch.tensor([[3], [3]])], 1)
    count = edges.shape[1]
    return Graph.from_edges(
        torch.cat([edges, edges.flip(0)], 1),
        num_nodes=36,
        x=torch.randn(36, 6, generator=made),
        edge_weight=torch.rand(count, generator=made).repeat(2) + 0.1,
        edge_type=torch.randint(3, (count,), generator=made).repeat(2),
        num_relations=3,
    )


def hidden_ends(graph: Graph, salt: int) -> Ends:
    """Return the ends of some edges and of their reverses, and some that no edge joins."""
    made = torch.Generator().manual_seed(salt)
    src, dst = graph.edge_index[:, torch.randperm(graph.num_edges, generator=made)[:30]].long()
    some, other = torch.randint(graph.num_nodes, (2, 5), generator=made)
    return Ends(torch.cat([src, dst[:20], some]), torch.cat([dst, src[:20], other]))


def seeds_of_rank(group: Group, num_nodes: int, salt: int) -> Tensor:
    """Return distinct nodes, whoever owns them, others on each rank; one rank has none."""
    made = torch.Generator().manual_seed(100 * salt + group.rank)
    count = 0 if group.rank and group.rank == salt % group.size else 9
    return torch.randperm(num_nodes, generator=made)[:count].sort().values


def hidden_batches(group: Group) -> list[str]:
    """Return in what batches with hidden edges and seeds of others differ from those of one process."""
    wrong = []
    for salt, (kind, fanout, options) in enumerate(CASES):
        graph = pair_graph(kind)
        num_parts = 2 * group.size if group.size < 4 else group.size
        parts = (torch.arange(36) % num_parts).int()
        shard = local_graph(group, graph, parts, num_parts).shard
        ends = hidden_ends(graph, salt)
        seeds = seeds_of_rank(group, 36, salt)
        more: dict[str, Any] = {"hidden": ends}
        if "temporal" in options:
            seeds = seeds.repeat(2).sort().values
            more["times"] = torch.arange(len(seeds)) % 7
        whole = NeighborSampler(graph, fanout, seed=5, **options).sample(seeds, 2, 7, **more)
        whole.without_labels()
        sampler = PartitionedSampler(shard, group, fanout, seed=5, **options)
        if kind in ("hub", "relations"):
            nodes = important_of(graph, Replicate(threshold=0.8))
            sampler.hold(with_replicas(sampler, nodes), nodes)
        found = sampler.sample(seeds, 2, 7, **more)
        found.without_labels()
        said = differing(found, whole) + degrees_differ(graph, found, whole)
        wrong += [f"{kind} {fanout} {options}: {what}" for what in said]
    return wrong + what_is_known_of_seeds(group)


def degrees_differ(graph: Graph, found: Batch, whole: Batch) -> list[str]:
    """Return the degrees, by relation and weighted, in which two batches differ."""
    wrong = []
    for mine, theirs in zip(found.blocks, whole.blocks):
        for relation in (None, *range(graph.num_relations)):
            for ask in ("in_degree",) if whole.seed_of is not None else ("in_degree", "out_degree"):
                for weighted in (False,) if whole.seed_of is not None else (False, True):
                    a, b = (getattr(each, ask)("src", relation, weighted=weighted) for each in (mine, theirs))
                    # Weights of edges out of a node lie with many and are subtracted.
                    near = 1e-12 if weighted and ask == "out_degree" else 0.0
                    if a.shape != b.shape or not torch.allclose(a, b, rtol=near, atol=near):
                        wrong.append(f"{ask} of {relation}, weighted: {weighted}")
    return wrong


def what_is_known_of_seeds(group: Group) -> list[str]:
    """Return what is wrong with labels and times of seeds: others' are not known here."""
    graph = timed_graph("directed")
    shard = local_graph(group, graph, (torch.arange(36) % group.size).int(), group.size).shard
    wrong = []
    batch = PartitionedSampler(shard, group, [2]).sample(shard.node_ids)
    wrong += [] if torch.equal(batch.y, graph.y[shard.node_ids]) else ["labels of own seeds"]
    batch = PartitionedSampler(shard, group, [2]).sample(torch.arange(36))
    wrong += [] if (batch.y is None) == (group.size > 1) else ["labels of others' seeds"]
    for kind, error, words, more in (
        ("times", InputError, "not temporal", {"times": [1]}),
        ("labor", InputError, "see all edges", {"hidden": Ends(torch.tensor([0]), torch.tensor([1]))}),
        ("temporal", GraphError, "give them", {}),
    ):
        if kind == "temporal" and group.size == 1:
            continue
        options = {"labor": {"kind": "labor"}, "temporal": {"temporal": True}}.get(kind, {})
        sampler = PartitionedSampler(shard, group, [2], **options)  # type: ignore[arg-type]
        try:
            sampler.sample([(group.rank + 1) % 36], **more)
            wrong.append(f"{kind} is accepted")
        except error as told:  # type: ignore[misc]
            wrong += [] if words in str(told) else [f"{kind}: {told}"]
    return wrong
