"""Graphs that hypothesis makes: isolated nodes, self loops, multi-edges, one node, no edges, hubs, types."""

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from weft.graph import Graph, SparseFeatures


@st.composite
def edge_lists(draw: st.DrawFn, num_src: int, num_dst: int, max_edges: int = 30) -> Tensor:
    """Draw edges (2, E) with repeats and self loops; sometimes most of them go to one hub."""
    if num_src == 0 or num_dst == 0:
        return torch.empty(2, 0, dtype=torch.int64)
    pairs = st.tuples(st.integers(0, num_src - 1), st.integers(0, num_dst - 1))
    edges = draw(st.lists(pairs, max_size=max_edges))
    if draw(st.booleans()):
        hub = draw(st.integers(0, num_dst - 1))
        edges += [(source, hub) for source in draw(st.lists(st.integers(0, num_src - 1), max_size=max_edges))]
    return torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t().contiguous()


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 8, relations: int | None = None) -> Graph:
    """Draw a graph of one node type with any of features, labels, masks, edge data and relations."""
    num_nodes = draw(st.integers(1, max_nodes))
    edges = draw(edge_lists(num_nodes, num_nodes))
    numbers = np.random.default_rng(draw(st.integers(0, 2**16)))
    if relations is None:
        relations = draw(st.sampled_from([1, 1, 3]))
    given: dict[str, Any] = {}
    if draw(st.booleans()):
        given["x"] = torch.from_numpy(numbers.standard_normal((num_nodes, 3)))
        if draw(st.booleans()):
            given["x"] = SparseFeatures.from_dense(given["x"] * (given["x"] > 0))
    if draw(st.booleans()):
        given["y"] = torch.from_numpy(numbers.integers(0, 3, num_nodes))
        part = numbers.integers(0, 3, num_nodes)
        part[0] = 0
        masks = {
            f"{name}_mask": torch.from_numpy(part == place) for place, name in enumerate(["train", "val"])
        }
        given |= {name: mask for name, mask in masks.items() if mask.any()}
    num_edges = edges.shape[1]
    if draw(st.booleans()):
        given["edge_weight"] = torch.from_numpy(numbers.random(num_edges) + 0.5)
    if draw(st.booleans()):
        given["edge_attr"] = torch.from_numpy(numbers.standard_normal((num_edges, 2)))
    if draw(st.booleans()):
        given["edge_time"] = torch.from_numpy(numbers.integers(0, 100, num_edges))
    if relations > 1:
        given |= {
            "edge_type": torch.from_numpy(numbers.integers(0, relations, num_edges)),
            "num_relations": relations,
        }
    return Graph.from_edges(edges, num_nodes=num_nodes, **given)


@st.composite
def typed_graphs(draw: st.DrawFn) -> Graph:
    """Draw a graph of papers and maybe authors, with relations that differ in their data."""
    authors, papers = draw(st.integers(0, 4)), draw(st.integers(1, 5))
    numbers = np.random.default_rng(draw(st.integers(0, 2**16)))
    writes = draw(edge_lists(authors, papers, 10))
    cites = draw(edge_lists(papers, papers, 10))
    nodes: dict[str, dict[str, Any]] = {"author": {"num_nodes": authors}, "paper": {"num_nodes": papers}}
    nodes["paper"]["x"] = torch.from_numpy(numbers.standard_normal((papers, 2)))
    nodes["paper"]["y"] = torch.from_numpy(numbers.integers(0, 2, papers))
    edges: dict[tuple[str, str, str], dict[str, Any]] = {
        ("author", "writes", "paper"): {"edge_index": writes},
        ("paper", "cites", "paper"): {"edge_index": cites},
    }
    if draw(st.booleans()):
        edges["paper", "cites", "paper"]["edge_weight"] = torch.from_numpy(numbers.random(cites.shape[1]))
    if draw(st.booleans()):
        edges["author", "writes", "paper"]["edge_attr"] = torch.from_numpy(
            numbers.random((writes.shape[1], 2))
        )
        edges["paper", "cites", "paper"]["edge_attr"] = torch.from_numpy(numbers.random((cites.shape[1], 3)))
    return Graph.from_types(nodes, edges)


def adjacency(graph: Graph, weighted: bool = False, relation: int | None = None) -> Tensor:
    """Return the dense matrix A with A[v, u] the number (or the weight) of edges u → v, float64."""
    dense = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    values = torch.ones(graph.num_edges, dtype=torch.float64)
    if weighted:
        values = graph.given_edge_data()["weight"].double()
    if relation is not None:
        kinds = graph.given_edge_type()
        values = values * (relation == 0 if kinds is None else (kinds == relation))
    source, target = graph.edge_index
    return dense.index_put_((target, source), values, accumulate=True)


def assert_same(a: Graph, b: Graph) -> None:
    """Assert that two graphs hold the same nodes, edges in the same order, data, types and ids."""
    assert (a.num_nodes, a.num_edges) == (b.num_nodes, b.num_edges)
    assert (a.node_types, a.node_offsets, a.edge_types) == (b.node_types, b.node_offsets, b.edge_types)
    assert torch.equal(a.edge_index, b.edge_index)
    for name in ("indptr", "indices", "edge_ids", "edge_type"):
        assert_equal(getattr(a, name), getattr(b, name))
    assert a.edge_columns == b.edge_columns
    assert a.edge_data.keys() == b.edge_data.keys()
    for name in a.edge_data:
        assert_equal(a.edge_data[name], b.edge_data[name])
    assert a.node_data.keys() == b.node_data.keys()
    for kind, data in a.node_data.items():
        assert data.keys() == b.node_data[kind].keys()
        for name, value in data.items():
            assert_equal(value, b.node_data[kind][name])
    assert a.node_ids == b.node_ids


def assert_equal(a: Any, b: Any) -> None:
    """Assert equal values, dtypes and shapes of tensors, sparse features or None."""
    assert type(a) is type(b)
    if isinstance(a, SparseFeatures):
        assert a.shape == b.shape
        for part in ("indptr", "indices", "values"):
            assert_equal(getattr(a, part), getattr(b, part))
    elif a is not None:
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
