"""The built-in graph: deterministic, with hubs, and with labels that need the graph."""

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from weft.datasets.community import community


def test_graph_is_a_function_of_its_seed() -> None:
    one, same, other = (community(nodes=2000, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.edge_index, same.edge_index)
    assert torch.equal(one.x, same.x)
    assert torch.equal(one.train_mask, same.train_mask)
    assert not torch.equal(one.y, other.y)


def test_edges_go_both_ways_once_and_never_back_to_their_node() -> None:
    graph = community(nodes=2000)
    src, dst = graph.edge_index
    forward, backward = src * 2000 + dst, dst * 2000 + src
    assert torch.equal(forward.sort().values, backward.sort().values)
    assert len(forward.unique()) == graph.num_edges
    assert not bool((src == dst).any())


def test_degrees_have_the_wanted_mean_and_a_heavy_tail() -> None:
    degree = community(nodes=20_000, degree=18).in_degree()
    assert 16 < float(degree.mean()) <= 18
    assert float(degree.max()) > 30 * float(degree.median())


def test_most_edges_stay_inside_their_community_and_many_do_not() -> None:
    graph = community(nodes=5000)
    src, dst = graph.edge_index
    assert 0.55 < float((graph.y[src] == graph.y[dst]).float().mean()) < 0.7


def test_split_covers_all_nodes_once() -> None:
    graph = community(nodes=1000)
    counts = [int(mask.sum()) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)]
    assert counts == [600, 200, 200]


def test_labels_need_the_graph() -> None:
    graph = community(nodes=5000)
    x, y = graph.x.numpy(), graph.y.numpy()
    train, test = graph.train_mask.numpy(), graph.test_mask.numpy()

    def accuracy(features: np.ndarray) -> float:
        model = LogisticRegression(max_iter=200, tol=1e-2).fit(features[train], y[train])
        return float(model.score(features[test], y[test]))

    once = graph.block().aggregate(graph.x, "mean")
    twice = graph.block().aggregate(once, "mean")
    assert 0.45 < accuracy(x) < 0.68
    assert accuracy(np.concatenate([x, once.numpy(), twice.numpy()], axis=1)) > 0.88


def test_smallest_graphs_are_possible() -> None:
    for nodes in (1, 2, 3):
        graph = community(nodes=nodes)
        assert graph.num_nodes == nodes
        assert graph.x.shape == (nodes, 64)
