"""The small typed graph: every type, every relation, labels that follow the edges."""

import torch

from weft.datasets.typed import typed


def test_types_relations_and_features_are_there() -> None:
    graph = typed(papers=50, authors=20, venues=5, classes=3, features=8)
    assert sorted(graph.node_types) == ["author", "paper", "venue"]
    assert len(graph.edge_types) == 5
    assert graph.num_edges == 50 * (3 + 3 + 1 + 1 + 2)
    assert graph.target_type == "paper"
    assert graph.num_classes == 3
    assert {kind: tuple(x.shape) for kind, x in graph.x.items()} == {"paper": (50, 8), "author": (20, 5)}


def test_graph_is_a_function_of_its_seed() -> None:
    one, same, other = (typed(seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.edge_index, same.edge_index)
    assert torch.equal(one.x["paper"], same.x["paper"])
    assert not torch.equal(one.edge_index, other.edge_index)


def test_most_neighbours_are_of_the_same_field() -> None:
    graph = typed()
    offsets = {kind: graph.rows_of_type(kind).start for kind in graph.node_types}
    src, dst = graph.edge_index
    papers = graph.rows_of_type("paper")
    inside = (src >= papers.start) & (src < papers.stop) & (dst >= papers.start) & (dst < papers.stop)
    same = (src[inside] - offsets["paper"]) % 4 == (dst[inside] - offsets["paper"]) % 4
    assert 0.8 < float(same.float().mean()) < 0.92


def test_smallest_graph_is_possible() -> None:
    assert typed(papers=1, authors=1, venues=1, classes=2, features=1).num_nodes == 3
