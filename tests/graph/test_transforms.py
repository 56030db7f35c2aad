"""Changed copies of a graph: by hand, and as properties."""

import pytest
import torch
from generated_graphs import adjacency, assert_same, graphs, typed_graphs
from hypothesis import given, settings

from weft.errors import GraphError
from weft.graph import Graph, SparseFeatures


def edges_of(graph: Graph) -> list[tuple[int, int]]:
    return [(u, v) for u, v in graph.edge_index.t().tolist()]


def test_symmetrise_adds_the_missing_direction_with_its_twins_data() -> None:
    graph = Graph.from_edges([[0, 1, 1], [1, 0, 2]], edge_weight=[1.0, 2.0, 3.0]).symmetrise()
    assert edges_of(graph) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert graph.given_edge_data()["weight"].tolist() == [1, 2, 3, 3]


def test_symmetrise_turns_edges_within_their_relation() -> None:
    graph = Graph.from_edges([[0, 1], [1, 0]], edge_type=[0, 1]).symmetrise()
    assert edges_of(graph) == [(0, 1), (1, 0), (1, 0), (0, 1)]
    kinds = graph.given_edge_type()
    assert kinds is not None
    assert kinds.tolist() == [0, 1, 0, 1]


def test_symmetrise_refuses_relations_between_types() -> None:
    graph = Graph.from_types({"a": {"num_nodes": 1}, "b": {"num_nodes": 1}}, {("a", "to", "b"): [[0], [0]]})
    with pytest.raises(GraphError, match=r"\('a', 'to', 'b'\) joins two node types.*add_inverse_relations"):
        graph.symmetrise()


def test_self_loops_are_added_where_missing() -> None:
    graph = Graph.from_edges(
        [[0, 1, 0], [0, 2, 2]],
        edge_weight=[5.0, 6.0, 7.0],
        edge_attr=[[1.0], [2.0], [4.0]],
        edge_time=[30, 20, 40],
    )
    looped = graph.add_self_loops()
    assert edges_of(looped) == [(0, 0), (1, 2), (0, 2), (1, 1), (2, 2)]
    data = looped.given_edge_data()
    assert data["weight"].tolist() == [5, 6, 7, 1, 1]
    assert data["attr"].flatten().tolist() == [1, 2, 4, 0, 3]  # node 2: the mean of its incoming edges
    assert data["time"].tolist() == [30, 20, 40, 20, 20]
    assert edges_of(looped.remove_self_loops()) == [(1, 2), (0, 2)]


def test_self_loops_of_a_typed_graph_have_relations_of_their_own() -> None:
    graph = Graph.from_types(
        {"a": {"num_nodes": 1}, "b": {"num_nodes": 2}},
        {("a", "to", "b"): {"edge_index": [[0], [1]], "edge_weight": [2.0]}},
    )
    looped = graph.add_self_loops()
    assert looped.edge_types == [("a", "to", "b"), ("a", "self_loop", "a"), ("b", "self_loop", "b")]
    assert edges_of(looped) == [(0, 2), (0, 0), (1, 1), (2, 2)]
    kinds = looped.given_edge_type()
    assert kinds is not None
    assert kinds.tolist() == [0, 1, 2, 2]
    assert looped.given_edge_data()["weight"].tolist() == [2, 1, 1, 1]
    assert looped.edge_columns == {"weight": [0, None, None]}
    assert looped.add_self_loops() is looped


def test_inverse_relations_double_the_relations() -> None:
    graph = Graph.from_types(
        {"a": {"num_nodes": 1}, "b": {"num_nodes": 2}},
        {
            ("a", "to", "b"): {"edge_index": [[0, 0], [0, 1]], "edge_attr": [[2.0], [3.0]]},
            ("b", "is", "b"): [[0], [1]],
        },
    )
    both = graph.add_inverse_relations()
    assert both.edge_types[2:] == [("b", "rev_to", "a"), ("b", "rev_is", "b")]
    assert edges_of(both) == [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)]
    kinds = both.given_edge_type()
    assert kinds is not None
    assert kinds.tolist() == [0, 0, 1, 2, 2, 3]
    assert both.given_edge_data()["attr"].flatten().tolist() == [2, 3, 0, 2, 3, 0]
    assert both.edge_columns == {"attr": [1, None, 1, None]}


def test_inverse_of_a_plain_graph_makes_two_relations() -> None:
    both = Graph.from_edges([[0], [1]]).add_inverse_relations()
    assert both.num_relations == 2
    assert both.block().aggregate(torch.tensor([[1.0], [2.0]]), relation=1).tolist() == [[2], [0]]


def test_the_first_of_equal_edges_is_kept() -> None:
    graph = Graph.from_edges(
        [[0, 1, 0, 0], [1, 0, 1, 1]], edge_type=[0, 0, 0, 1], edge_weight=[1.0, 2.0, 3.0, 4.0]
    )
    once = graph.drop_duplicates()
    assert edges_of(once) == [(0, 1), (1, 0), (0, 1)]
    assert once.given_edge_data()["weight"].tolist() == [1, 2, 4]


def test_node_data_is_kept() -> None:
    x, y, mask = torch.eye(3), torch.tensor([0, 1, 2]), torch.tensor([True, False, True])
    graph = Graph.from_edges([[0, 1], [1, 2]], x=x, y=y, train_mask=mask, node_ids=["a", "b", "c"])
    for changed in (
        graph.symmetrise(),
        graph.add_self_loops(),
        graph.remove_self_loops(),
        graph.drop_duplicates(),
        graph.add_inverse_relations(),
    ):
        assert changed.x is x
        assert torch.equal(changed.train_mask, mask)  # type: ignore[arg-type]
        assert changed.node_ids == graph.node_ids


@pytest.mark.parametrize("sparse", [False, True])
def test_features_are_normalised_by_row(sparse: bool) -> None:
    x = torch.tensor([[1.0, 3.0], [0.0, 0.0], [-2.0, 2.0]])
    graph = Graph.from_edges([[0], [1]], x=SparseFeatures.from_dense(x) if sparse else x).normalise_features()
    rows = graph.x.to_dense() if sparse else graph.x
    assert rows.tolist() == [[0.25, 0.75], [0, 0], [-0.5, 0.5]]


@settings(deadline=None, max_examples=60)
@given(graph=graphs())
def test_symmetrise_is_symmetric_and_idempotent(graph: Graph) -> None:
    once = graph.symmetrise()
    for relation in range(graph.num_relations):
        dense = adjacency(once, relation=relation)
        assert torch.equal(dense, dense.t())
        given = adjacency(graph, relation=relation)
        assert torch.equal(dense, ((given + given.t()) > 0).double())
    assert_same(once.symmetrise(), once)


@settings(deadline=None, max_examples=60)
@given(graph=graphs())
def test_self_loops_come_and_go(graph: Graph) -> None:
    looped = graph.add_self_loops()
    assert bool((adjacency(looped).diagonal() >= 1).all())
    off_diagonal = adjacency(graph) * (1 - torch.eye(graph.num_nodes, dtype=torch.float64))
    assert torch.equal(adjacency(looped) - torch.diag(adjacency(looped).diagonal()), off_diagonal)
    assert_same(looped.add_self_loops(), looped)
    bare = graph.remove_self_loops()
    assert torch.equal(adjacency(bare), off_diagonal)
    assert_same(bare.remove_self_loops(), bare)


@settings(deadline=None, max_examples=60)
@given(graph=graphs())
def test_duplicates_are_dropped_once_and_for_all(graph: Graph) -> None:
    once = graph.drop_duplicates()
    for relation in range(graph.num_relations):
        assert torch.equal(
            adjacency(once, relation=relation), (adjacency(graph, relation=relation) > 0).double()
        )
    assert_same(once.drop_duplicates(), once)


@settings(deadline=None, max_examples=40)
@given(graph=typed_graphs())
def test_inverse_relations_are_transposes(graph: Graph) -> None:
    both = graph.add_inverse_relations()
    for relation in range(graph.num_relations):
        forward = adjacency(both, relation=relation)
        assert torch.equal(adjacency(both, relation=relation + graph.num_relations), forward.t())
        assert torch.equal(forward, adjacency(graph, relation=relation))
