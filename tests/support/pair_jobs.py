"""What ranks do in the tests of batches of pairs: importable by name, so that other processes find it."""

from dataclasses import replace
from typing import Any

import torch
from halo_jobs import MODELS, graph_of, local_graph
from sampled_jobs import differing, important_of, timed_graph
from torch import Tensor

from weft.comm.group import Group
from weft.errors import GraphError, InputError
from weft.graph.ends import mirrored
from weft.graph.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.samplers import EdgeBatch, EdgeLoader, NegativeSampler, NeighborSampler
from weft.samplers.base import Batch
from weft.samplers.core.hidden import HiddenPairs
from weft.samplers.edges import pairs_of_edges
from weft.samplers.workers import reverses
from weft.samplers.workers.partitioned import PartitionedSampler
from weft.samplers.workers.replicas import Replicate, with_replicas
from weft.tasks.negatives import Negatives, Nodes
from weft.train.model import adapt, build_model

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
    if kind in ("timed", "timed typed"):
        return timed_graph("hub" if kind == "timed" else "typed")
    if kind == "typed both ways":
        return both_ways(graph_of("typed"))
    if kind.startswith("mirrored"):
        graph = graph_of("directed").symmetrise().drop_duplicates()
        kept = graph.edge_index[:, kind == "mirrored but one" :]
        return graph if kind == "mirrored" else graph.with_edges(kept, None, {})
    if kind != "relations":
        return graph_of(kind)
    made = torch.Generator().manual_seed(1)
    edges = torch.randint(36, (2, 110), generator=made)
    edges = torch.cat([edges, edges[:, :15], torch.tensor([[3], [3]])], 1)
    count = edges.shape[1]
    return Graph.from_edges(
        torch.cat([edges, edges.flip(0)], 1),
        num_nodes=36,
        x=torch.randn(36, 6, generator=made),
        y=torch.arange(36) % 3,
        edge_weight=torch.rand(count, generator=made).repeat(2) + 0.1,
        edge_type=torch.randint(3, (count,), generator=made).repeat(2),
        num_relations=3,
    )


def both_ways(graph: Graph) -> Graph:
    """Return the typed graph with "of" the reverse of "writes", all of it, and only that."""
    edges, kinds = graph.edge_index, graph.given_edge_type()
    assert kinds is not None
    writes = graph.edge_types.index(("author", "writes", "paper"))
    of = graph.edge_types.index(("paper", "of", "author"))
    kept = kinds != of
    turned = edges[:, kinds == writes].flip(0)
    joined = torch.cat([edges[:, kept], turned], 1)
    return graph.with_edges(joined, torch.cat([kinds[kept], torch.full((turned.shape[1],), of)]), {})


def hidden_ends(graph: Graph, salt: int) -> HiddenPairs:
    """Return the ends of some edges and of their reverses, and some that no edge joins."""
    made = torch.Generator().manual_seed(salt)
    src, dst = graph.edge_index[:, torch.randperm(graph.num_edges, generator=made)[:30]].long()
    some, other = torch.randint(graph.num_nodes, (2, 5), generator=made)
    return HiddenPairs(torch.cat([src, dst[:20], some]), torch.cat([dst, src[:20], other]))


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
        whole.without_y()
        sampler = PartitionedSampler(shard, group, fanout, seed=5, **options)
        if kind in ("hub", "relations"):
            nodes = important_of(graph, Replicate(threshold=0.8))
            sampler.hold(with_replicas(sampler, nodes), nodes)
        found = sampler.sample(seeds, 2, 7, **more)
        found.without_y()
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
        ("labor", InputError, "see all edges", {"hidden": HiddenPairs(torch.tensor([0]), torch.tensor([1]))}),
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


# Batches of pairs


# Graph, model, what draws negatives, options of the sampler.
PAIR_CASES: list[tuple[str, str, str | None, dict[str, Any]]] = [
    ("directed", "gcn", "own", {}),
    ("mirrored", "sage mean", "joint", {"resample": "step"}),
    ("hub", "gcn", "both", {"weight": "weight"}),
    ("relations", "rgcn", "own", {}),
    ("isolated", "gin", "inbatch", {"replace": True}),
    ("typed", "rgcn", None, {}),
    ("timed", "sage mean", "own", {"temporal": True}),
]


DRAWS: dict[str, Negatives] = {
    "joint": Negatives("joint", count=4, seed=4),
    "both": Negatives("uniform", count=2, side="both", seed=4),
    "inbatch": Negatives("inbatch", seed=4),
}


def drawn_by(name: str | None, graph: Graph) -> Any:
    """Return what draws negatives of pairs: for each, shared by a step, or of both sides."""
    if name is None or name == "own":
        return NegativeSampler(graph, 2, seed=4, exclude=False) if name else None
    among = Nodes.of(graph)

    def draw(pairs: Pairs, epoch: int, step: int, *, batch: Pairs) -> Any:
        return DRAWS[name].draw(pairs, epoch, among=among, step=step, batch=batch)

    return draw


def training_pairs(graph: Graph) -> Pairs:
    """Return some of the edges as pairs."""
    made = torch.Generator().manual_seed(8)
    pairs = pairs_of_edges(graph, torch.randperm(graph.num_edges, generator=made)[:40])
    return replace(pairs, y=torch.arange(40), keys=torch.arange(40) + 3)


def pair_batches(group: Group) -> list[str]:
    """Return in what batches of pairs on ranks differ from those of one process."""
    wrong = relations_agree(group)
    lane = group.subgroup(range(group.size), purpose="batches")  # they are prepared beside what ranks do here
    for kind, name, negatives, options in PAIR_CASES:
        graph = adapt(pair_graph(kind), MODELS[name][0])
        num_parts = 2 * group.size if group.size < 4 else group.size
        shard = local_graph(group, graph, (torch.arange(36) % num_parts).int(), num_parts).shard
        model = build_model(graph, MODELS[name][0], {"hidden": 8, "layers": 2, "dropout": 0.0}, seed=1)
        pairs, drawn = training_pairs(graph), drawn_by(negatives, graph)
        given: dict[str, Any] = {"batch_size": 6, "threads": 1}
        whole = EdgeLoader(NeighborSampler(graph, [3, 2], seed=5, **options), drawn, pairs, **given)
        part = EdgeLoader(PartitionedSampler(shard, lane, [3, 2], seed=5, **options), drawn, pairs, **given)
        for epoch in range(2):
            if part.epoch != epoch or len(part) != len(whole):
                wrong.append(f"{kind}: other steps")
            for mine, theirs in zip(part, whole, strict=True):
                said = rows_differ(group, shard.node_ids, model, mine, theirs)
                wrong += [f"{kind}, {negatives} negatives, epoch {epoch}: {what}" for what in said]
        left_and_resumed(part, whole)
    return wrong


def rows_differ(group: Group, own: Tensor, model: Any, mine: EdgeBatch, theirs: EdgeBatch) -> list[str]:
    """Return in what the rows of the ends differ, as a model computes them, and whether a pair is missing."""
    wrong = []
    chosen = torch.isin(theirs.pairs.dst, own)
    if not torch.equal(mine.edges, theirs.edges[chosen]) or not torch.equal(
        mine.pairs.y, theirs.pairs.y[chosen]
    ):
        wrong.append("pairs")
    counted = int(group.all_reduce(torch.tensor(len(mine.pairs))).wait())
    if not counted == mine.total == theirs.total == len(theirs.pairs):
        wrong.append(f"{counted} pairs of {theirs.total}")
    h, whole = model(mine.blocks, mine.x), model(theirs.blocks, theirs.x)
    expected = theirs.negative
    if theirs.masked is not None:
        assert mine.masked is not None
        twice = chosen.repeat(len(theirs.masked) // len(chosen))
        wrong += [] if torch.equal(mine.masked, theirs.masked[twice]) else ["masks"]
    if expected.dim() > 1:
        expected = expected[chosen.repeat(len(expected) // len(chosen))]
    ends = ((mine.src, theirs.src[chosen]), (mine.dst, theirs.dst[chosen]), (mine.negative, expected))
    for place, (rows, others) in enumerate(ends):
        off = (h[rows] - whole[others]).abs() if rows.shape == others.shape else torch.full((1,), torch.inf)
        wrong += [f"end {place} by {off.max():.1e}"] if off.numel() and off.max() > 1e-5 else []
    return wrong


def left_and_resumed(part: EdgeLoader, whole: EdgeLoader) -> None:
    """Leave an epoch after a step, and go on with it."""
    for batch in part:
        assert len(batch.pairs) <= batch.total
        break
    part.settle()
    assert part.state() == {"epoch": 2, "step": 1}
    later = [batch.edges for batch in part]
    expected = [part.own(whole.pairs_of(2, step)).keys for step in range(1, len(whole))]
    assert len(later) == len(expected)
    assert all(torch.equal(*each) for each in zip(later, expected))


def relations_agree(group: Group) -> list[str]:
    """Return where ranks see other relations as mirrored than one process does."""
    wrong = []
    reverses.CHUNK = 7  # several rounds, of which some ranks need fewer
    for kind in ("directed", "mirrored", "mirrored but one", "relations", "typed", "typed both ways"):
        graph = pair_graph(kind)
        shard = local_graph(group, graph, (torch.arange(36) % group.size).int(), group.size).shard
        found = PartitionedSampler(shard, group, [1]).mirrored()
        if not torch.equal(found, mirrored(graph)):
            wrong.append(f"{kind}: mirrored {found.tolist()}, in one process {mirrored(graph).tolist()}")
    return wrong
