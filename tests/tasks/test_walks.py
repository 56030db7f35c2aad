"""Walks leave by edges, end where none leaves, and are the same whoever draws them."""

import torch

import weft
from weft.tasks.walks import walk_pairs


def triangle_with_tail() -> weft.Graph:
    """0 → 1 → 2 → 0, 2 → 3, and 4 alone."""
    return weft.Graph.from_edges([[0, 1, 2, 2], [1, 2, 0, 3]], num_nodes=5)


def ends(graph: weft.Graph, **options: int) -> list[tuple[int, int]]:
    pairs = walk_pairs(graph, **options)
    return [*zip(pairs.src.tolist(), pairs.dst.tolist())]


def test_a_pair_is_within_so_many_steps_along_the_edges() -> None:
    graph = triangle_with_tail()
    assert {*ends(graph, length=1, walks=20)} == {(0, 1), (1, 2), (2, 0), (2, 3)}
    assert {*ends(graph, length=2, walks=20)} == {
        (0, 1),
        (1, 2),
        (2, 0),
        (2, 3),
        (0, 2),
        (1, 0),
        (1, 3),
        (2, 1),
    }


def test_a_walk_ends_where_no_edge_leaves_and_no_node_is_paired_with_itself() -> None:
    line = weft.Graph.from_edges([[0, 1], [1, 2]], num_nodes=4)
    assert sorted(ends(line, length=7, walks=3)) == sorted([(0, 1), (0, 2), (1, 2)] * 3)
    assert ends(weft.Graph.from_edges([[1], [1]], num_nodes=2), length=3, walks=2) == []
    assert (
        ends(weft.Graph.from_edges(torch.zeros(2, 0, dtype=torch.int64), num_nodes=2), length=3, walks=2)
        == []
    )


def test_each_edge_that_leaves_has_the_same_chance_and_a_copy_counts_twice() -> None:
    star = weft.Graph.from_edges([[0, 0, 0, 0], [1, 2, 3, 3]], num_nodes=4)
    met = torch.bincount(walk_pairs(star, length=1, walks=8000).dst, minlength=4).double()
    expected = torch.tensor([2000.0, 2000.0, 4000.0])
    assert float(((met[1:] - expected) ** 2 / expected).sum()) < 20
    assert int(met[0]) == 0


def test_walks_are_a_function_of_the_seed_and_not_of_the_order_of_edges() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=50, seed=1)
    turned = weft.Graph.from_edges(graph.edge_index.flip(1), num_nodes=50)
    assert ends(graph, length=3, walks=2) == ends(turned, length=3, walks=2)
    assert ends(graph, length=3, walks=2) != ends(graph, length=3, walks=2, seed=1)
    assert {*ends(graph, length=3, walks=1)} < {*ends(graph, length=3, walks=2)}, "walks are drawn one by one"


def test_no_step_of_a_walk_is_drawn_as_a_step_of_another() -> None:
    nodes = torch.arange(400)
    ways = weft.Graph.from_edges(torch.stack([nodes.repeat(2), torch.cat([nodes + 1, nodes + 2]) % 400]))
    pairs = walk_pairs(ways, length=2, walks=2)
    met = pairs.dst.reshape(2, 400, 2)  # by step, start and walk
    taken = torch.stack([met[0] - nodes[:, None], met[1] - met[0]]) % 400  # 1 or 2 further
    draws = taken.permute(0, 2, 1).reshape(4, 400)
    for one in range(4):
        for other in range(one):
            assert 0.35 < float((draws[one] == draws[other]).double().mean()) < 0.65
