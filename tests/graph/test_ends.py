"""Edges by their two ends: one number per pair, mirrored relations, one of each group."""

import torch

from weft.graph import Graph
from weft.graph.ends import drawn_order, edge_ends, first_of_each, mirrored, only, pair_ids


def test_both_directions_of_a_pair_have_one_number_unless_they_are_told_apart() -> None:
    src, dst = torch.tensor([1, 4, 2, 2]), torch.tensor([4, 1, 3, 2])
    assert pair_ids(src, dst, 5).tolist() == [9, 9, 13, 12]
    assert pair_ids(src, dst, 5, undirected=False).tolist() == [9, 21, 13, 12]


def test_a_relation_is_mirrored_where_each_edge_has_one_the_other_way() -> None:
    edges = torch.tensor([[0, 1, 0, 2, 3, 3], [1, 0, 2, 0, 3, 0]])
    kinds = [0, 0, 1, 2, 1, 2]  # 0: both ways; 1: its reverse is of relation 2, and a loop; 2: 3 → 0 alone
    graph = Graph.from_edges(edges, edge_type=kinds)
    assert mirrored(graph).tolist() == [True, True, False]
    assert mirrored(graph, within=True).tolist() == [True, False, False]
    assert mirrored(Graph.from_edges(edges[:, :2])).tolist() == [True]


def test_ends_and_relations_come_in_canonical_order() -> None:
    graph = Graph.from_edges([[2, 0, 1], [0, 1, 0]], edge_type=[1, 0, 0])
    assert [each.tolist() for each in edge_ends(graph)] == [[1, 2, 0], [0, 0, 1], [0, 1, 0]]
    assert edge_ends(Graph.from_edges([[0], [1]]))[2].tolist() == [0]


def test_an_order_is_drawn_by_the_pairs_not_by_their_places() -> None:
    pairs = torch.tensor([3, 14, 15, 92, 65, 35])
    turned = pairs.flip(0)
    assert torch.equal(pairs[drawn_order(pairs, 1)], turned[drawn_order(turned, 1)])
    assert not torch.equal(drawn_order(pairs, 1), drawn_order(pairs, 2))
    assert not torch.equal(drawn_order(pairs, 1), drawn_order(pairs, 1, use=1))


def test_the_lowest_of_each_group_is_chosen_by_the_first_rank_then_the_next() -> None:
    group = torch.tensor([1, 0, 1, 0, 1])
    first, second = torch.tensor([5, 2, 4, 2, 4]), torch.tensor([0, 9, 8, 1, 7])
    assert first_of_each(group, first, second).tolist() == [3, 4]


def test_some_edges_stay_in_the_users_order_with_their_data() -> None:
    graph = Graph.from_edges([[2, 0, 1], [0, 1, 0]], num_nodes=3, edge_weight=[1.0, 2.0, 3.0])
    left = only(graph, torch.tensor([False, True, True]))  # canonical: 1 → 0, 2 → 0, 0 → 1
    assert left.edge_index.tolist() == [[2, 0], [0, 1]]
    assert left.given_edge_data()["weight"].tolist() == [1.0, 2.0]
