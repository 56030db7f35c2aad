"""What every data set may have done to it before training: directions, self loops, features, a split."""

import warnings
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from weft.config import Range
from weft.draw import Stream, fold, permutation
from weft.errors import DataNote, GraphError
from weft.graph.graph import Graph
from weft.graph.row_ranges import some_edges
from weft.graph.sparse import SparseFeatures

Auto = Literal["auto"]
SPLITS = ("train_mask", "val_mask", "test_mask")
NO_SPLIT = "the data has labels and no split"
"""How the note of a split that was drawn begins."""
_OUTSIDE: dict[str, Any] = {"split": -1, "train_mask": False, "val_mask": False, "test_mask": False}
"""What edge data says of edges that are in no split."""
Fraction = Annotated[float, Range(above=0, below=1)]


def prepare(
    graph: Graph,
    *,
    symmetrise: bool | Auto = "auto",
    inverse_relations: bool | Auto = "auto",
    self_loops: bool = False,
    normalise_features: bool = False,
    identity_features: bool = False,
    train_fraction: Fraction | None = None,
    val_fraction: Fraction | None = None,
    split_seed: int | None = None,
) -> Graph:
    """Return the graph with the wanted changes made; the graph given stays as it is.

    `symmetrise="auto"` adds the other direction of every edge where a file states each pair once: one kind of
    edge, and no edge whose reverse is there too. `inverse_relations="auto"` adds the inverse of every
    relation where some type of node would otherwise receive no messages; inverses are in no split of edges.
    `identity_features` gives every node a column of its own, for graphs without features: the first layer
    then learns one row per node. A split is drawn where the data has labels and none, or when a fraction or a
    seed is given: 60 % train, 20 % validation and the rest test unless said otherwise. A note
    (`weft.DataNote`) tells of what was decided here.
    """
    graph = _both_ways(graph, symmetrise, inverse_relations)
    if self_loops:
        graph = graph.add_self_loops()
    if identity_features:
        graph = with_identity(graph)
    if normalise_features:
        graph = graph.normalise_features()
    asked = not (train_fraction is None and val_fraction is None and split_seed is None)
    if asked or (graph.y is not None and graph.train_mask is None):
        if not asked:
            message = f"{NO_SPLIT}, so one was drawn: 60 % train, 20 % validation, 20 % test"
            _note(f"{message} (data.train_fraction, data.val_fraction and data.split_seed draw another)")
        graph = split_nodes(graph, train=train_fraction or 0.6, val=val_fraction or 0.2, seed=split_seed or 0)
    return graph


def _both_ways(graph: Graph, symmetrise: bool | Auto, inverse_relations: bool | Auto) -> Graph:
    """Return the graph with the other direction of edges, and the inverses of relations, where wanted."""
    if symmetrise == "auto" and (symmetrise := one_way(graph)):
        message = f"no edge has its reverse, so the other direction of all {graph.num_edges:,} was added"
        _note(f"{message} (data.symmetrise = false keeps them as they are)", depth=5)
    if symmetrise:
        graph = graph.symmetrise()
    if inverse_relations == "auto" and (inverse_relations := some_type_receives_nothing(graph)):
        message = "some type of node is the target of no relation, so the inverse of every relation was added"
        _note(f"{message} (data.inverse_relations = false keeps them as they are)", depth=5)
    if inverse_relations:
        graph = _no_targets(graph.add_inverse_relations(), graph.num_edges)
    return graph


def _no_targets(graph: Graph, first: int) -> Graph:
    """Return the graph with edges from `first` on in no split: an inverse is no fact of its own."""
    data = {name: value.clone() for name, value in graph.given_edge_data().items() if name in _OUTSIDE}
    if not data:
        return graph
    for name, value in data.items():
        value[first:] = _OUTSIDE[name]
    return graph.with_edges(graph.edge_index, graph.given_edge_type(), {**graph.given_edge_data(), **data})


def _note(told: str, *, depth: int = 4) -> None:
    warnings.warn(told, DataNote, stacklevel=depth)


def with_identity(graph: Graph) -> Graph:
    """Return the graph with the identity matrix as its features, kept sparse."""
    if len(graph.node_types) > 1 or graph.x is not None:
        raise GraphError("identity_features is for graphs of one node type that have no features")
    ids = torch.arange(graph.num_nodes + 1)
    columns = ids[:-1].to(torch.int32 if graph.num_nodes < 2**31 else torch.int64)
    size = (graph.num_nodes, graph.num_nodes)
    return graph.with_data(x=SparseFeatures(ids, columns, torch.ones(graph.num_nodes), size))


def one_way(graph: Graph) -> bool:
    """Return whether the graph has one kind of edge and no edge has its reverse: each pair stands once."""
    if len(graph.node_types) > 1 or graph.edge_type is not None or graph.num_edges == 0:
        return False
    # The first edges decide for most graphs; only a one-way graph is searched to its end.
    for src, dst in some_edges(graph.indptr, graph.indices):
        joins = src != dst
        if bool(_there(graph, dst[joins], src[joins].long()).any()):
            return False
    return True


def _there(graph: Graph, src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
    """Return whether there is an edge from each source to its destination; the graph has one relation."""
    low, end = graph.indptr[dst], graph.indptr[dst + 1]  # sources of a row ascend
    high, last = end.clone(), graph.num_edges - 1
    while bool((low < high).any()):
        middle = (low + high) // 2
        before = (graph.indices[middle.clamp(max=last)] < src) & (low < high)
        low = torch.where(before, middle + 1, low)
        high = torch.where(before, high, torch.minimum(high, middle))
    return (low < end) & (graph.indices[low.clamp(max=last)] == src)


def some_type_receives_nothing(graph: Graph) -> bool:
    """Return whether the graph has several types of nodes and one of them is the target of no relation."""
    return len(graph.node_types) > 1 and {target for _, _, target in graph.edge_types} < set(graph.node_types)


def split_nodes(graph: Graph, *, train: float = 0.6, val: float = 0.2, seed: int = 0) -> Graph:
    """Return the graph with masks drawn over its labelled nodes: the same for a seed on any machine."""
    if graph.y is None:
        raise GraphError(
            "a split needs labels, and the data set has none; leave out the fractions and split_seed"
        )
    if train + val > 1:
        raise GraphError(f"train_fraction {train:g} and val_fraction {val:g} make more than 1")
    masks = draw_split(labelled_nodes(graph.y), train=train, val=val, seed=seed)
    # A mask that was not drawn is None, which removes one that the graph had.
    drawn: dict[str, Any] = {name: masks.get(name) for name in SPLITS}
    return graph.with_data(**drawn)


def labelled_nodes(y: torch.Tensor) -> NDArray[np.bool_]:
    """Return which nodes have a label: not -1, or in the multi-label case at least one label."""
    known = (y >= 0) if y.dim() == 1 else (y > 0).any(dim=1)
    return known.cpu().numpy()


def draw_split(labelled: NDArray[np.bool_], *, train: float, val: float, seed: int) -> dict[str, Any]:
    """Return train, validation and test masks over the labelled nodes, drawn by counter."""
    ids = np.flatnonzero(labelled)
    ids = ids[permutation(fold(seed, Stream.SPLIT), len(ids))]
    ends = [0, round(train * len(ids)), round((train + val) * len(ids)), len(ids)]
    masks = {}
    for index, name in enumerate(SPLITS):
        chosen = ids[ends[index] : ends[index + 1]]
        if len(chosen):  # an empty mask is an error to a graph: a part too small to hold a node is left out
            masks[name] = np.zeros(len(labelled), np.bool_)
            masks[name][chosen] = True
    return masks
