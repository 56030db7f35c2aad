"""The built-in graph: communities with power-law degrees whose labels need the graph.

A degree-corrected block model: every node has a community, which is its label, and a weight from a power
law. An edge starts at a node drawn by weight; with probability `homophily` it ends in the same community,
otherwise anywhere. The features are a class mean drowned in noise: a linear model on them gets about 60 %,
while averaging over neighbours removes the noise and gets above 90 %.
"""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.config import Range
from weft.datasets import datasets
from weft.datasets.prepare import draw_split
from weft.draw import Stream, fold, normal, threshold, uniform
from weft.draw import draw as draw_bits
from weft.graph.graph import Graph

Count = Annotated[int, Range(least=1)]
Ids = NDArray[np.int64]
Numbers = NDArray[np.float64]

# What is drawn, each with a key of its own (the `layer` of the fold).
_COMMUNITY, _WEIGHT, _EDGE, _FEATURE, _MEAN = range(5)


@datasets.add("community", "synthetic")
def community(
    *,
    nodes: Count = 50_000,
    degree: Annotated[float, Range(above=0)] = 18.0,
    classes: Annotated[int, Range(least=2)] = 8,
    features: Count = 64,
    homophily: Annotated[float, Range(least=0, most=1)] = 0.55,
    exponent: Annotated[float, Range(above=2)] = 2.5,
    signal: Annotated[float, Range(least=0)] = 1.6,
    seed: int = 0,
) -> Graph:
    """Return an undirected graph of communities, with features, labels and a 60/20/20 split.

    `degree` is the average number of neighbours (duplicates removed, so slightly less), `exponent` that of
    the power law of degrees, `homophily` the share of edges kept inside a community beyond chance, `signal`
    the length of a class mean against noise of variance 1 in every feature.
    """
    label = _communities(nodes, classes, seed)
    edge_index = _edges(label, classes, round(nodes * degree / 2), homophily, exponent, seed)
    masks = draw_split(np.ones(nodes, np.bool_), train=0.6, val=0.2, seed=seed)
    x = _features(label, classes, features, signal, seed)
    return Graph.from_edges(edge_index, num_nodes=nodes, x=x, y=label, **masks)


def _key(seed: int, purpose: int) -> int:
    return fold(seed, Stream.SYNTHETIC, layer=purpose)


def _communities(nodes: int, classes: int, seed: int) -> Ids:
    """Return the community of each node; the first is about twice as large as the last."""
    sizes = 1.0 / (classes + np.arange(classes))
    place = uniform(_key(seed, _COMMUNITY), np.arange(nodes))
    return np.searchsorted(np.cumsum(sizes / sizes.sum())[:-1], place, side="right").astype(np.int64)


def _edges(label: Ids, classes: int, count: int, homophily: float, exponent: float, seed: int) -> Ids:
    """Return both directions of about `count` pairs, without duplicates and self loops, [2, E]."""
    nodes = len(label)
    # Pareto weights by inversion, capped so that a hub expects at most a tenth of the nodes as neighbours.
    weight = (1.0 - uniform(_key(seed, _WEIGHT), np.arange(nodes))) ** (-1.0 / (exponent - 1.0))
    weight = np.minimum(weight, 0.1 * weight.sum() * nodes / max(2 * count, 1))
    order = np.argsort(label, kind="stable")  # communities lie side by side: an end is one search either way
    ends = np.concatenate([[0.0], np.cumsum(weight[order])])
    starts = ends[np.searchsorted(label[order], np.arange(classes + 1))]

    ids, key = np.arange(count), _key(seed, _EDGE)
    src = order[_search(ends, uniform(key, ids, 0) * ends[-1])]
    inside = draw_bits(key, ids, 1) < threshold(homophily)
    low = np.where(inside, starts[label[src]], 0.0)
    high = np.where(inside, starts[label[src] + 1], ends[-1])
    dst = order[_search(ends, low + uniform(key, ids, 2) * (high - low))]
    kept = src != dst
    src, dst = src[kept], dst[kept]
    keys = np.unique(np.concatenate([src * nodes + dst, dst * nodes + src]))
    return np.stack([keys // nodes, keys % nodes])


def _search(ends: Numbers, place: Numbers) -> Ids:
    return np.clip(np.searchsorted(ends, place, side="right") - 1, 0, len(ends) - 2)


def _features(label: Ids, classes: int, features: int, signal: float, seed: int) -> NDArray[np.float32]:
    columns = np.arange(features)
    means = normal(_key(seed, _MEAN), np.arange(classes)[:, None], columns)
    means *= signal / np.linalg.norm(means, axis=1, keepdims=True)
    x = normal(_key(seed, _FEATURE), np.arange(len(label))[:, None], columns)
    return (x + means[label]).astype(np.float32)
