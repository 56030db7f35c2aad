"""What is done to every data set: directions, self loops, features, splits."""

import warnings
from typing import Any

import pytest
import torch
from generated_graphs import graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.datasets.prepare import one_way, prepare, split_nodes
from weft.datasets.typed import typed
from weft.errors import DataNote, GraphError
from weft.graph import row_ranges
from weft.graph.graph import Graph
from weft.graph.sparse import SparseFeatures
from weft.tasks.split import split_pairs

ONCE = [[0, 0, 1, 2], [1, 2, 2, 3]]


def edges(graph: Graph) -> set[tuple[int, ...]]:
    return {tuple(edge) for edge in graph.edge_index.T.tolist()}


def test_pairs_that_stand_once_get_their_other_direction() -> None:
    graph = prepare(Graph.from_edges(ONCE))
    assert edges(graph) == {(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1), (2, 3), (3, 2)}


def test_self_loop_does_not_count_as_its_own_reverse() -> None:
    assert one_way(Graph.from_edges([[0, 1, 1], [1, 2, 1]]))


@settings(max_examples=60, deadline=None)
@given(graphs(max_nodes=7), st.integers(1, 5))
def test_one_way_is_what_a_set_of_pairs_says(graph: Graph, some: int) -> None:
    pairs = {(src, dst) for src, dst in graph.edge_index.T.tolist() if src != dst}
    expected = graph.num_edges > 0 and not pairs & {(dst, src) for src, dst in pairs}
    expected &= graph.edge_type is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_ranges, "EDGES_AT_ONCE", some)
        assert one_way(graph) == expected


def test_graph_with_one_pair_both_ways_stays_directed() -> None:
    directed = Graph.from_edges([[0, 1, 1, 2], [1, 0, 2, 3]])
    assert edges(prepare(directed)) == edges(directed)
    assert prepare(directed, symmetrise=True).num_edges == 6


def test_pairs_stay_as_they_are_when_told_so() -> None:
    assert edges(prepare(Graph.from_edges(ONCE), symmetrise=False)) == set(zip(*ONCE))


def test_relations_are_not_symmetrised_unasked() -> None:
    graph = Graph.from_edges(ONCE, edge_type=[0, 1, 0, 1])
    assert prepare(graph).num_edges == 4
    assert prepare(graph, inverse_relations=True).num_relations == 4


def test_an_inverse_is_a_message_and_in_no_split() -> None:
    edges: Any = {
        ("a", "r", "a"): {"edge_index": [[0, 1, 2], [1, 2, 0]], "split": [0, 1, 2], "weight": [1.0, 2.0, 3.0]}
    }
    whole = Graph.from_types({"a": {"num_nodes": 3}}, edges)
    graph = prepare(whole, symmetrise=False, inverse_relations=True)
    given = graph.given_edge_data()
    assert given["split"].tolist() == [0, 1, 2, -1, -1, -1]
    assert given["weight"].tolist() == [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]
    assert [kind[1] for kind in graph.edge_types] == ["r", "rev_r"]
    _, pairs = split_pairs(graph)
    assert {name: len(some) for name, some in pairs.items()} == {"train": 1, "val": 1, "test": 1}


def test_typed_graph_gets_inverse_relations_where_a_type_receives_nothing() -> None:
    nodes = {"a": {"num_nodes": 2}, "p": {"num_nodes": 3}}
    one_sided = Graph.from_types(nodes=nodes, edges={("p", "to", "a"): {"edge_index": [[0, 2], [0, 1]]}})
    prepared = prepare(one_sided)
    assert prepared.num_edges == 4
    assert {(source, target) for source, _, target in prepared.edge_types} == {("p", "a"), ("a", "p")}
    assert prepare(one_sided, inverse_relations=False).num_edges == 2
    complete = typed(papers=10, authors=5, venues=2)
    assert prepare(complete).num_edges == complete.num_edges


def test_self_loops_and_normalised_features_are_given_when_asked() -> None:
    graph = Graph.from_edges(ONCE, x=[[1.0, 3.0], [2.0, 2.0], [0.0, 0.0], [0.0, 5.0]])
    prepared = prepare(graph, self_loops=True, normalise_features=True)
    assert {(node, node) for node in range(4)} <= edges(prepared)
    torch.testing.assert_close(prepared.x, torch.tensor([[0.25, 0.75], [0.5, 0.5], [0, 0], [0, 1]]))
    assert graph.x[0].tolist() == [1.0, 3.0]


def labelled(**options: object) -> Graph:
    y = torch.arange(100) % 3
    y[:20] = -1
    return Graph.from_edges([[0, 1], [1, 2]], num_nodes=100, y=y, **options)


def test_split_is_drawn_over_labelled_nodes_where_there_is_none() -> None:
    graph = prepare(labelled())
    assert [int(mask.sum()) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)] == [48, 16, 16]
    assert not bool((graph.train_mask | graph.val_mask | graph.test_mask)[:20].any())


def test_split_is_a_function_of_its_seed() -> None:
    one, same, other = (prepare(labelled(), split_seed=seed).train_mask for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_given_split_is_kept_unless_another_is_asked_for() -> None:
    mask = torch.arange(100) >= 90
    assert torch.equal(prepare(labelled(train_mask=mask)).train_mask, mask)
    redrawn = prepare(labelled(train_mask=mask), train_fraction=0.5, val_fraction=0.25)
    counts = [int(part.sum()) for part in (redrawn.train_mask, redrawn.val_mask, redrawn.test_mask)]
    assert counts == [40, 20, 20]


def test_redrawn_split_leaves_nothing_of_the_old_one() -> None:
    old = labelled(train_mask=torch.arange(100) == 90, val_mask=torch.arange(100) == 91)
    redrawn = prepare(old, train_fraction=0.999, val_fraction=0.001)
    assert int(redrawn.train_mask.sum()) == 80
    assert redrawn.val_mask is None
    assert redrawn.test_mask is None


def test_fractions_above_one_are_refused() -> None:
    with pytest.raises(GraphError, match=r"train_fraction 0.9 and val_fraction 0.2 make more than 1"):
        prepare(labelled(), train_fraction=0.9)


def test_split_without_labels_is_refused() -> None:
    with pytest.raises(GraphError, match="a split needs labels"):
        split_nodes(Graph.from_edges(ONCE))


def test_identity_features_give_every_node_a_column_and_stay_sparse() -> None:
    graph = prepare(Graph.from_edges([[0, 1], [1, 2]]), symmetrise=False, identity_features=True)
    assert isinstance(graph.x, SparseFeatures)
    assert torch.equal(graph.x.to_dense(), torch.eye(3))
    with pytest.raises(GraphError, match="no features"):
        prepare(graph, identity_features=True)


def test_what_auto_decides_is_told_and_what_was_asked_for_is_not() -> None:
    with pytest.warns(DataNote, match=r"other direction of all 2 was added \(data.symmetrise = false"):
        prepare(Graph.from_edges([[0, 1], [1, 2]]))
    one_way_types = Graph.from_types(
        {"a": {"num_nodes": 2}, "b": {"num_nodes": 2}}, {("a", "to", "b"): [[0], [1]]}
    )
    with pytest.warns(DataNote, match="inverse of every relation was added"):
        assert prepare(one_way_types).num_relations == 2
    with pytest.warns(DataNote, match=r"labels and no split.* 60 % train.*\(data.train_fraction, "):
        prepare(labelled(), symmetrise=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare(Graph.from_edges([[0, 1], [1, 2]]), symmetrise=True)
        prepare(Graph.from_edges([[0, 1], [1, 0]]))
        prepare(one_way_types, inverse_relations=True)
        prepare(labelled(), symmetrise=True, split_seed=0)
        prepare(labelled(train_mask=torch.arange(100) >= 90), symmetrise=True)
