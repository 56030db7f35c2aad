"""What the blocks of subgraphs answer on several ranks, word by word: as in one process."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from batch_jobs import PARTS, SAINTS, held
from halo_jobs import NODES, far, graph_of, parts_of
from torch import Tensor, nn

from weft.comm.group import Group
from weft.graph import Graph
from weft.graph.message.block import Block
from weft.samplers import ClusterSampler, SaintSampler
from weft.strategies.minibatch.clustered import Clustered, Saint
from weft.train.model import adapt

Word = Callable[[Tensor], Tensor]
CLUSTERS: dict[str, Any] = {"together": 2}
CASES: list[tuple[str, str, dict[str, Any]]] = [  # a graph, the layer that it is made ready for, options
    ("hub", "gcn", SAINTS[0]),
    ("hub", "gcn", {**CLUSTERS, "enhance": 0.3}),
    ("attributed", "gine", SAINTS[1]),
    ("typed", "rgcn", SAINTS[2]),
    ("typed", "rgcn", CLUSTERS),
]


def answered(group: Group) -> list[str]:
    """Return which values and gradients differ, in a step of random subgraphs and of clusters."""
    wrong = []
    for kind, layer, options in CASES:
        graph = adapt(graph_of(kind), layer).to(dtype=torch.float64)
        for whole, part in blocks(group, graph, kind, options):
            wrong += [f"{options} on {kind}: {what}" for what in differing(whole, part)]
    return wrong


def blocks(group: Group, graph: Graph, kind: str, options: dict[str, Any]) -> Iterator[tuple[Block, Block]]:
    """Give the block of one process and that of a rank."""
    strategy: Clustered | Saint
    local = held(group, graph, kind)
    if "how" in options:
        drawn = {name: value for name, value in options.items() if name not in ("steps", "prepare")}
        whole: Any = SaintSampler(graph, seed=3, coverage=5, **drawn)
        strategy = Saint(local, seed=3, group=group, coverage=5, **options)
    else:
        parts = parts_of(kind, PARTS)
        whole = ClusterSampler(graph, PARTS, seed=3, parts=parts, enhance=options.get("enhance", 0.0))
        strategy = Clustered(local, seed=3, group=group, **options)
    part: Any = strategy.batching.make_loader(nn.Identity()).sampler
    chosen = torch.tensor([0, 3])  # clusters
    yield whole.sample(chosen).blocks[0], part.sample(chosen).blocks[0]
    strategy.close()


def differing(whole: Block, part: Block) -> list[str]:
    """Return the words whose values or gradients differ at the rows of a rank."""
    place = torch.full((NODES,), -1)
    place[whole.dst_ids] = torch.arange(whole.num_dst)
    rows, wrong = place[part.dst_ids], []
    for name in words(whole):
        wanted, found = results(whole, name), results(part, name)
        away = [far(a, b[rows]) if len(rows) else 0.0 for a, b in zip(found, wanted)]
        wrong += [f"{what} of {name}: {d:.1e}" for what, d in zip(("value", "gradient"), away) if d > 1e-12]
    return wrong


def results(block: Block, name: str) -> tuple[Tensor, Tensor]:
    """Return what a word gives for rows that depend on the node alone, and the gradient at these rows."""
    generator = torch.Generator().manual_seed(9)
    table, after = torch.randn(2, NODES, 4, dtype=torch.float64, generator=generator)
    h = table[block.dst_ids].requires_grad_()
    value = words(block)[name](h)
    (value * after[block.dst_ids]).sum().backward()
    assert h.grad is not None
    return value.detach(), h.grad


def words(block: Block) -> dict[str, Word]:
    """Return what a layer may ask of a block, by name."""
    asked: dict[str, Word] = {
        "aggregate pairs": lambda h: block.aggregate_pairs(lambda pairs, rows: rows[pairs.rows], [h]),
        "propagate pairs": lambda h: pairs_propagated(block, h),
        "multiplicity": lambda h: stand_for(block) + 0 * h[:, :1],
    }
    if block.has_edge("weight"):
        asked["aggregate by weight"] = partial(block.aggregate, weight=block.edge("weight"))
    for reduce in ("sum", "mean", *(() if getattr(block, "enhanced", False) else ("max",))):
        asked[f"aggregate {reduce}"] = partial(block.aggregate, reduce=reduce)
        asked[f"propagate {reduce}"] = partial(propagated, block, reduce)
        for number in () if block.edge_type is None else range(block.num_relations):
            one = block.relation(number)
            in_one = partial(block.aggregate, reduce=reduce, relation=number)
            asked[f"aggregate {reduce} in relation {number}"] = in_one
            asked[f"aggregate {reduce} of relation {number}"] = partial(one.aggregate, reduce=reduce)
            asked[f"propagate {reduce} of relation {number}"] = partial(propagated, one, reduce)
    return asked


def propagated(block: Block, reduce: str, h: Tensor) -> Tensor:
    """Return the reduced messages of both ends' rows, what edges hold and a parameter."""
    values = [block.edge(name) for name in ("weight", "attr") if block.has_edge(name)]
    edge = [value[:, :1] if value.dim() > 1 else value[:, None] for value in values]
    given: dict[str, Any] = {
        "src": [h],
        "dst": [block.dst(h)],
        "edge": edge,
        "params": [torch.ones(1).double()],
    }
    return block.propagate(
        lambda *each: torch.stack(torch.broadcast_tensors(*each)).sum(0).tanh(), reduce=reduce, **given
    )


def pairs_propagated(block: Block, h: Tensor) -> Tensor:
    """Return the summed messages of (relation, source) pairs."""
    pairs = block.by_relation()
    return pairs.propagate(torch.tanh, src=[block.src(h)[pairs.rows]])


def stand_for(block: Block) -> Tensor:
    """Return how many edges those into each row stand for, together."""
    each = block.multiplicity()
    each = torch.ones(block.num_edges) if each is None else each
    sums = torch.zeros(block.num_dst, 1, dtype=torch.float64)
    return sums.index_add_(0, block.edge_dst, each.double()[:, None])
