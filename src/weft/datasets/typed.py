"""A small generated graph with several types of nodes and edges."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.config import Range
from weft.datasets import datasets
from weft.datasets.prepare import draw_split
from weft.draw import Stream, draw, fold, normal, threshold
from weft.graph.graph import Graph

Count = Annotated[int, Range(least=1)]

# Nodes of every type belong to field id mod classes; one neighbour in five is of any field.
_STRANGERS = 0.2


@datasets.add("typed")
def typed(
    *,
    papers: Count = 600,
    authors: Count = 300,
    venues: Count = 12,
    classes: Annotated[int, Range(least=2)] = 4,
    features: Count = 16,
    seed: int = 0,
) -> Graph:
    """Return papers, authors and venues with relations both ways; the label of a paper is its field.

    Every paper has one venue and three authors and cites two papers, mostly of its own field. Papers have
    noisy features, authors have none that tell anything and of another width, venues have none at all.
    """
    ids = np.arange(papers)
    key = fold(seed, Stream.SYNTHETIC)
    field = ids % classes
    venue = _of_field(field, venues, classes, key, lanes=(0,))
    author = _of_field(field, authors, classes, key, lanes=(1, 2, 3))
    cited = _of_field(field, papers, classes, key, lanes=(4, 5))
    three, two = np.tile(ids, 3), np.tile(ids, 2)
    edges = {
        ("author", "writes", "paper"): np.stack([author, three]),
        ("paper", "written_by", "author"): np.stack([three, author]),
        ("venue", "publishes", "paper"): np.stack([venue, ids]),
        ("paper", "published_in", "venue"): np.stack([ids, venue]),
        ("paper", "cites", "paper"): np.stack([two, cited]),
    }
    nodes = {
        "paper": {
            "x": (np.eye(classes, features)[field] + _noise(papers, features, seed, 1)).astype(np.float32),
            "y": field,
            **draw_split(np.ones(papers, np.bool_), train=0.5, val=0.2, seed=seed),
        },
        "author": {"x": _noise(authors, features // 2 + 1, seed, 2).astype(np.float32)},
        "venue": {"num_nodes": venues},
    }
    return Graph.from_types(
        nodes=nodes, edges={triple: {"edge_index": pair} for triple, pair in edges.items()}
    )


def _of_field(
    field: NDArray[np.int64], count: int, classes: int, key: int, *, lanes: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return for each lane and paper one of `count` nodes: mostly of the paper's field, sometimes any."""
    ids = np.arange(len(field))[None, :]
    lane = np.array(lanes)[:, None]
    anyone = draw(key, ids, 2 * lane).astype(np.int64) % count
    own = (anyone - anyone % classes + field) % count
    stranger = draw(key, ids, 2 * lane + 1) < threshold(_STRANGERS)
    return np.where(stranger, anyone, own).ravel()


def _noise(rows: int, columns: int, seed: int, layer: int) -> NDArray[np.float64]:
    return normal(fold(seed, Stream.SYNTHETIC, layer=layer), np.arange(rows)[:, None], np.arange(columns))
