"""About how much memory of a GPU a step takes: over the whole graph, on chunks of it, on sampled batches."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.graph.sparse import SparseFeatures
from weft.layers.base import Layer
from weft.layers.learned import LearnedRows
from weft.layers.stack import Stack
from weft.samplers.neighbor import NeighborSampler
from weft.strategies.call import known_hops
from weft.strategies.minibatch.fanouts import usual_fanouts
from weft.strategies.offload.blocks import Message
from weft.strategies.offload.offload import LayerPlan, Offload, needed_bytes, size_of

_KEPT = 3
"""Matrices of the size of a layer's output that a step holds, at least: rows, gradients, what made them."""
STATE = 3
"""Matrices of the size of learned rows that training keeps: they, and two moments of Adam."""
_BATCH = 1024
"""Seeds of a step of a sampled run that is told nothing else."""


def whole_bytes(graph: Graph, model: nn.Module) -> int:
    """Return what a step over the whole graph takes at least: edges both ways, features, rows of layers."""
    edges = 2 * graph.indptr.nbytes + graph.num_edges * (graph.indices.element_size() + 8)
    widths = [int(module.out_width) for module in model.modules() if isinstance(module, Layer)]
    read = 2 * learned_bytes(model)  # rows that are read, and their gradients; the tables may lie on the host
    return edges + feature_bytes(graph) + read + graph.num_nodes * size_of(model) * _KEPT * sum(widths)


def learned_bytes(model: nn.Module) -> int:
    """Return the bytes of learned rows."""
    return sum(each.weight.nbytes for each in model.modules() if isinstance(each, LearnedRows))


def feature_bytes(graph: Graph) -> int:
    """Return the bytes of the features that lie in memory."""
    features = [data["x"] for data in graph.node_data.values() if "x" in data]
    dense = sum(x.nbytes for x in features if isinstance(x, Tensor))
    return dense + sum(8 * x.nnz for x in features if isinstance(x, SparseFeatures))


def sampled_bytes(
    graph: Graph, model: Stack, fanout: Sequence[int] | None = None, batch_size: int = _BATCH
) -> int:
    """Return what sampled training takes where edges and features lie on the GPU too: they and a step.

    A batch is drawn to see how many rows and edges one has.
    """
    fanouts = usual_fanouts(known_hops(model) or 1) if fanout is None else fanout
    seeds = graph.seeds_or_all()
    places = torch.linspace(0, len(seeds) - 1, min(batch_size, len(seeds))).long()
    batch = NeighborSampler(graph, fanouts).sample(seeds[places])
    edges = graph.indptr.nbytes + graph.num_edges * (graph.indices.element_size() + 4) + 4 * graph.num_nodes
    rows = learned_bytes(model)
    weights = 4 * (sum(each.nbytes for each in model.parameters()) - rows)  # gradients, two moments
    return edges + feature_bytes(graph) + weights + STATE * rows + step_bytes(graph, model, batch.blocks)


def step_bytes(graph: Graph, model: Stack, blocks: Sequence[Block]) -> int:
    """Return what forward and backward on a batch take: rows that are kept, and the widest gradients."""
    messages = LayerPlan.of(Offload(graph, torch.device("cpu"), memory=1), model, memory=1).messages
    size, layers = size_of(model), [each for each in model.layers if isinstance(each, Layer)]
    inputs = blocks[0].num_src * size * layers[0].in_features
    kept, most = inputs, 0
    for number, (layer, block) in enumerate(zip(layers, blocks)):
        sent, own = _message_bytes(None if messages is None else messages[number], layer, size)
        rows, out = block.num_dst, block.num_dst * layer.out_width * size
        kept += block.num_src * sent + rows * own + 2 * out + 24 * block.num_edges
        most = max(most, block.num_src * sent + 2 * out)
    return kept + most


def _message_bytes(messages: Sequence[Message] | None, layer: Layer, size: int) -> tuple[int, int]:
    """Return the bytes that a layer makes of a row it reads, and those it keeps of a row it makes."""
    if messages is None:
        return size * layer.out_width, 0
    made = sum(message.nbytes for message in messages if not message.given)
    return made, sum(message.nbytes for message in messages if message.given)


def offload_bytes(graph: Graph, model: Stack) -> int:
    """Return what a step on chunks of the graph takes at least, with rows between layers on the host."""
    return needed_bytes(Offload(graph, torch.device("cpu"), memory=1), model, torch.device("cuda"))
