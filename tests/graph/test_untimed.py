"""Edges without times beside others: a reverse comes when its edge does, the rest was always there."""

import warnings
from typing import Any

import pytest
import torch

import weft
from weft.errors import DataNote
from weft.graph.untimed import with_all_times

LIKES, LIKED = ("user", "likes", "item"), ("item", "liked by", "user")


def typed(**more: Any) -> weft.Graph:
    """Three users and three items; one likes another twice."""
    src, dst, time = torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 2, 0]), torch.tensor([5, 7, 9, 8])
    edges: dict[Any, Any] = {
        LIKES: {"edge_index": torch.stack([src, dst]), "time": time},
        LIKED: {"edge_index": torch.stack([dst, src])},
        ("user", "knows", "user"): {"edge_index": torch.tensor([[0, 1], [1, 2]])},
    }
    edges[LIKED] |= more
    return weft.Graph.from_types({"user": {"num_nodes": 3}, "item": {"num_nodes": 3}}, edges)


def by_relation(graph: weft.Graph) -> list[list[int]]:
    assert graph.edge_type is not None
    return [graph.edge_data["time"][graph.edge_type == number].sort().values.tolist() for number in range(3)]


def test_a_reverse_came_when_its_edge_did_and_other_relations_were_always_there() -> None:
    with pytest.warns(DataNote, match="'item liked by user': no edge data 'time'"):
        whole = with_all_times(typed(), "time")
    assert by_relation(whole) == [[5, 7, 8, 9], [7, 8, 8, 9], [5, 5]], "of two copies the later time"
    assert whole.edge_columns["time"] == [0, 0, None], "others have no times still"


def test_a_relation_with_edges_of_its_own_is_no_reverse() -> None:
    graph = typed(edge_index=torch.tensor([[0, 1, 2, 2], [0, 1, 2, 0]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataNote)
        whole = with_all_times(graph, "time")
    assert by_relation(whole) == [[5, 7, 8, 9], [5, 5, 5, 5], [5, 5]]


def test_a_graph_whose_edges_all_have_times_is_left_alone() -> None:
    graph = weft.Graph.from_edges([[0, 1], [1, 2]], edge_time=[1, 2])
    assert with_all_times(graph, "time") is graph


def test_temporal_runs_see_a_reverse_without_times_as_one_with_the_times_of_its_edges() -> None:
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randperm(900, generator=generator)[:200]
    src, dst = pairs // 30, pairs % 30
    losses = []
    for more in ({}, {"time": torch.arange(200)}):
        graph = weft.Graph.from_types(
            {
                "user": {"x": torch.arange(120.0).view(30, 4).sin()},
                "item": {"x": torch.arange(90.0).view(30, 3).cos()},
            },
            {
                LIKES: {"edge_index": torch.stack([src, dst]), "time": torch.arange(200)},
                LIKED: {"edge_index": torch.stack([dst, src]), **more},
            },
        )
        split = {"by": "time", "key": "time", "val": 160, "test": 180}
        done = weft.train(
            graph,
            "rgcn",
            hidden=4,
            epochs=1,
            strategy={"name": "sampled", "temporal": True, "fanout": [3, 2], "batch_size": 20},
            task={"name": "link_prediction", "width": 4, "target": [LIKES], "split": split},
        )
        losses.append((done.loss, done.scores["mrr"]))
    assert losses[0] == losses[1]


@pytest.mark.parametrize("task", ["node_classification", "node_regression"])
def test_nodes_with_times_see_a_reverse_without_times_as_one_with_the_times_of_its_edges(task: str) -> None:
    pairs = torch.randperm(900, generator=torch.Generator().manual_seed(0))[:200]
    src, dst = pairs // 30, pairs % 30
    users = {
        "x": torch.arange(120.0).view(30, 4).sin(),
        "y": torch.arange(30) % 3,
        "time": 6 * torch.arange(30),
    }
    users["train_mask"] = torch.ones(30, dtype=torch.bool)
    losses = []
    for more in ({}, {"time": torch.arange(200)}):
        graph = weft.Graph.from_types(
            {"user": users, "item": {"x": torch.arange(90.0).view(30, 3).cos()}},
            {
                LIKES: {"edge_index": torch.stack([src, dst]), "time": torch.arange(200)},
                LIKED: {"edge_index": torch.stack([dst, src]), **more},
            },
        )
        strategy = {"name": "sampled", "temporal": True, "fanout": [3, 2]}
        losses.append(weft.train(graph, "rgcn", hidden=4, epochs=1, strategy=strategy, task=task).loss)
    assert losses[0] == losses[1]
