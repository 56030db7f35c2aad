"""Splits of pairs give nothing away."""

import warnings
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from weft.errors import DataNote, GraphError, InputError
from weft.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.tasks.split import split_pairs

Link = tuple[int, int]


def with_edge_data(graph: Graph, **data: Tensor) -> Graph:
    """Return the graph with edge data in the user's order."""
    given = {**graph.given_edge_data(), **data}
    return graph.with_edges(graph.edge_index, graph.given_edge_type(), given)


def random_graph(*, both: bool = True, seed: int = 0) -> Graph:
    """Return a graph with parallel edges and a self loop; with `both` every edge in both directions."""
    made = torch.Generator().manual_seed(seed)
    edges = torch.randint(40, (2, 150), generator=made)
    edges = torch.cat([edges, edges[:, :20], torch.tensor([[3], [3]])], 1)
    if both:
        edges = torch.cat([edges, edges.flip(0)], 1)
    return Graph.from_edges(edges, num_nodes=40)


def links(pairs: Pairs) -> list[Link]:
    return list(zip(pairs.src.tolist(), pairs.dst.tolist()))


def ends(some: Any) -> set[frozenset[int]]:
    """Return the pairs of nodes that edges or pairs join, whatever the direction."""
    src, dst = some.edge_index if isinstance(some, Graph) else (some.src, some.dst)
    return {frozenset(pair) for pair in zip(src.tolist(), dst.tolist())}


@pytest.mark.parametrize("both", [True, False])
def test_validation_and_test_pairs_their_reverses_and_copies_are_no_messages(both: bool) -> None:
    graph = random_graph(both=both)
    messages, pairs = split_pairs(graph, val=0.1, test=0.2)
    held = ends(pairs["val"]) | ends(pairs["test"])
    assert not ends(messages) & held
    assert ends(messages) | held == ends(graph)
    count = len(ends(graph))
    assert [len(ends(pairs[name])) for name in ("val", "test")] == [
        round(0.1 * count),
        round(0.3 * count) - round(0.1 * count),
    ]
    there = set(zip(*graph.edge_index.tolist()))
    assert {link for some in pairs.values() for link in links(some)} <= there
    stay = [edge for edge in graph.edge_index.T.tolist() if frozenset(edge) not in held]
    assert messages.edge_index.T.tolist() == stay, "every copy of what stays, in the user's order"


@pytest.mark.parametrize("both", [True, False])
def test_both_directions_of_a_pair_fall_into_one_split(both: bool) -> None:
    _, pairs = split_pairs(random_graph(both=both), val=0.2, test=0.3)
    assert set(pairs) == {"train", "val", "test"}
    for one, other in combinations(pairs.values(), 2):
        assert not ends(one) & ends(other)


def test_each_pair_of_an_undirected_graph_is_a_target_once() -> None:
    graph = random_graph()
    _, pairs = split_pairs(graph)
    assert sum(map(len, pairs.values())) == len(ends(graph))
    directed = random_graph(both=False)
    _, pairs = split_pairs(directed)
    assert sum(map(len, pairs.values())) == len(set(zip(*directed.edge_index.tolist())))
    _, pairs = split_pairs(directed, undirected=True)
    assert sum(map(len, pairs.values())) == len(ends(directed))


def test_the_order_of_edges_does_not_matter_and_the_seed_does() -> None:
    graph = random_graph(both=False)
    order = torch.randperm(graph.num_edges, generator=torch.Generator().manual_seed(1))
    turned = Graph.from_edges(graph.edge_index[:, order], num_nodes=40)
    for disjoint in (0.0, 0.4):
        _, one = split_pairs(graph, disjoint=disjoint)
        _, two = split_pairs(turned, disjoint=disjoint)
        assert {name: links(some) for name, some in one.items()} == {
            name: links(some) for name, some in two.items()
        }
        assert one["train"].keys.tolist() == list(range(len(one["train"])))
    _, other = split_pairs(graph, seed=1)
    assert links(other["test"]) != links(split_pairs(graph)[1]["test"])


def test_a_disjoint_share_of_the_training_pairs_are_targets_and_no_messages() -> None:
    graph = random_graph()
    whole, every = split_pairs(graph, disjoint=0.0)
    assert ends(every["train"]) == ends(whole), "by default training pairs are messages too"
    messages, pairs = split_pairs(graph, disjoint=0.3)
    assert len(pairs["train"]) == round(0.3 * len(every["train"]))
    assert ends(messages) | ends(pairs["train"]) == ends(whole)
    assert not ends(messages) & ends(pairs["train"])
    assert links(pairs["test"]) == links(every["test"])
    nothing, _ = split_pairs(graph, disjoint=1.0)
    assert nothing.num_edges == 0
    with pytest.raises(InputError, match="disjoint is a share"):
        split_pairs(graph, disjoint=1.5)


def test_a_reverse_in_another_relation_is_no_message_of_a_test_pair() -> None:
    # 0 has part 1, and 1 is part of 0: two relations, one fact.
    graph = Graph.from_edges(
        [[0, 1, 2, 3, 4, 0], [1, 0, 3, 4, 5, 5]], edge_type=torch.tensor([0, 1, 0, 0, 1, 1])
    )
    graph = with_edge_data(graph, split=torch.tensor([2, 0, 0, 1, 0, 0]))
    messages, pairs = split_pairs(graph)
    assert links(pairs["test"]) == [(0, 1)]
    assert pairs["test"].relation is not None
    assert pairs["test"].relation.tolist() == [0]
    assert ends(messages) == {frozenset(pair) for pair in ((2, 3), (4, 5), (0, 5))}
    assert (1, 0) in links(pairs["train"]), "the training triple stays a target, as given"
    assert "split" not in messages.edge_data


def test_a_validation_pair_that_is_joined_in_train_is_no_message() -> None:
    edges = torch.tensor([[0, 0, 1, 2, 2], [1, 1, 2, 1, 3]])  # 0 → 1 twice, 1 → 2 and back
    masks = {
        "train_mask": torch.tensor([True, False, True, False, True]),
        "val_mask": torch.tensor([False, True, False, False, False]),
        "test_mask": torch.tensor([False, False, False, True, False]),
    }
    graph = with_edge_data(Graph.from_edges(edges), **masks)
    messages, pairs = split_pairs(graph, by="given")
    assert messages.edge_index.tolist() == [[2], [3]]
    assert {name: links(some) for name, some in pairs.items()} == {
        "train": [(0, 1), (1, 2), (2, 3)],
        "val": [(0, 1)],
        "test": [(2, 1)],
    }
    assert not messages.edge_data


def test_a_given_split_counts_both_directions_of_a_symmetric_relation() -> None:
    split = torch.tensor([0, 0, 0, 2, 1, 0])
    graph = Graph.from_edges([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]], edge_data={"split": split})
    _, pairs = split_pairs(graph)
    assert {name: len(some) for name, some in pairs.items()} == {"train": 4, "val": 1, "test": 1}
    _, once = split_pairs(graph, undirected=True)
    assert {name: len(some) for name, some in once.items()} == {"train": 3, "val": 1, "test": 1}


def test_by_time_nothing_later_than_validation_is_a_message() -> None:
    edges = [[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 5, 2, 1]]
    graph = Graph.from_edges(edges, edge_time=[1, 2, 3, 4, 5, 5, 6])
    with pytest.warns(DataNote, match="1 later edges join pairs that an earlier split has"):
        messages, pairs = split_pairs(graph, by="time", val=3, test=5)
    assert messages.edge_index.tolist() == [[0, 1], [1, 2]]
    assert sorted(links(pairs["train"])) == [(0, 1), (1, 2)]
    assert links(pairs["val"]) == [(2, 3), (3, 4)]
    assert links(pairs["test"]) == [(0, 2), (4, 5)], "2 → 1 was joined before the test"
    assert pairs["test"].time is not None
    assert pairs["test"].time.tolist() == [5, 5]


def test_by_time_a_pair_is_new_once_at_its_first_time() -> None:
    graph = Graph.from_edges([[0, 0, 1, 0, 0], [1, 1, 0, 2, 2]], edge_time=[7, 2, 9, 9, 8])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataNote)
        messages, pairs = split_pairs(graph, by="time", val=5, test=8, undirected=True)
    assert {name: some.time.tolist() for name, some in pairs.items()} == {"train": [2], "test": [8]}  # type: ignore[union-attr]
    assert messages.edge_data["time"].tolist() == [2]


def test_by_time_relations_without_times_stay_and_later_ones_do_not() -> None:
    graph = Graph.from_types(
        {"author": {"num_nodes": 3}, "paper": {"num_nodes": 3}},
        {
            ("author", "writes", "paper"): {"edge_index": [[0, 1, 2], [0, 1, 2]], "year": [2019, 2020, 2021]},
            ("paper", "cites", "paper"): {"edge_index": [[0, 2], [1, 0]], "year": [2020, 2021]},
            ("author", "knows", "author"): [[0], [1]],
            ("paper", "by", "author"): {"edge_index": [[2], [2]], "year": [2019]},
        },
    )
    target = [("author", "writes", "paper")]
    messages, pairs = split_pairs(graph, target=target, by="time", key="year", val=2021, test=2022)
    assert messages.edge_index.T.tolist() == [[0, 3], [1, 4], [3, 4], [0, 1]]
    assert links(pairs["val"]) == [(2, 5)]
    assert pairs["val"].time is not None
    assert pairs["val"].time.tolist() == [2021]
    assert "test" not in pairs


def test_relations_without_times_stay_also_where_times_are_below_zero() -> None:
    graph = Graph.from_types(
        {"author": {"num_nodes": 3}},
        {
            ("author", "asks", "author"): {"edge_index": [[0, 1], [1, 2]], "time": [-9, -3]},
            ("author", "knows", "author"): [[2], [0]],
        },
    )
    messages, _ = split_pairs(graph, target="author asks author", by="time", val=-5, test=-1)
    assert messages.edge_index.T.tolist() == [[0, 1], [2, 0]]


def test_a_label_leaves_the_edges_and_keeps_their_direction() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 3, 4, 5]])
    data = {"sign": torch.tensor([0, 1, 2, -1, 1, 0]), "attr": torch.arange(6.0)[:, None]}
    graph = with_edge_data(Graph.from_edges(edges), split=torch.tensor([0, 0, 1, 1, 2, 0]), **data)
    messages, pairs = split_pairs(graph, label="sign")
    assert set(messages.edge_data) == {"attr"}
    assert ends(messages) == {frozenset(pair) for pair in ((0, 1), (2, 3), (4, 5))}, "2 → 3 is no target"
    train = pairs["train"]
    assert train.y is not None
    assert set(zip(links(train), train.y.tolist())) == {((0, 1), 0), ((1, 0), 1), ((4, 5), 0)}
    assert set(pairs["train"].data) == {"attr"}
    assert pairs["val"].y is not None
    assert (links(pairs["val"]), pairs["val"].y.tolist(), pairs["val"].data["attr"].tolist()) == (
        [(1, 2)],
        [2],
        [[2.0]],
    )
    assert pairs["val"].y.dtype == torch.int64


def test_numbers_to_predict_may_be_missing() -> None:
    rating = torch.tensor([0.5, float("nan"), 2.5, -3.0])
    graph = with_edge_data(Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 4]]), rating=rating)
    _, pairs = split_pairs(graph, label="rating", val=0, test=1 / 3)
    known = sorted(value for some in pairs.values() for value in some.y.tolist())  # type: ignore[union-attr]
    assert known == [-3.0, 0.5, 2.5]
    whole = with_edge_data(graph, rating=torch.tensor([0, -10, 3, 4]))
    with pytest.raises(GraphError, match="numbers to predict are stored as floats"):
        split_pairs(whole, label="rating")


def test_parallel_labelled_edges_are_all_targets_of_one_split() -> None:
    edges = torch.tensor([[0, 0, 1, 2], [1, 1, 0, 3]]).repeat(1, 5) + 4 * torch.arange(5).repeat_interleave(4)
    graph = with_edge_data(Graph.from_edges(edges), label=torch.arange(20))
    messages, pairs = split_pairs(graph, label="label", val=0.3, test=0.3)
    assert sum(map(len, pairs.values())) == 20
    for one, other in combinations(pairs.values(), 2):
        assert not ends(one) & ends(other)
    assert not ends(messages) & (ends(pairs["val"]) | ends(pairs["test"]))


def typed_graph() -> Graph:
    made = torch.Generator().manual_seed(0)
    writes = torch.stack([torch.randint(8, (40,), generator=made), torch.randint(12, (40,), generator=made)])
    return Graph.from_types(
        {"author": {"num_nodes": 8}, "paper": {"num_nodes": 12}},
        {
            ("author", "writes", "paper"): writes,
            ("paper", "by", "author"): writes.flip(0)[:, torch.randperm(40, generator=made)],
            ("paper", "cites", "paper"): [[0, 1], [1, 2]],
        },
    )


def test_a_target_relation_is_named_and_its_reverse_relation_hidden() -> None:
    graph = typed_graph()
    for target in ([("author", "writes", "paper")], "author writes paper", [["author", "writes", "paper"]]):
        messages, pairs = split_pairs(graph, target=target, val=0.1, test=0.2)
        assert not ends(messages) & (ends(pairs["val"]) | ends(pairs["test"]))
        for some in pairs.values():
            assert bool((some.src < 8).all() & (some.dst >= 8).all())
            assert some.relation is not None
            assert bool((some.relation == 0).all())
    kinds = messages.given_edge_type()
    assert kinds is not None
    counts = torch.bincount(kinds, minlength=3).tolist()
    assert counts[0] == counts[1] > 0
    assert counts[2] == 2
    with pytest.raises(GraphError, match="'author writes paper', 'paper by author', 'paper cites paper'"):
        split_pairs(graph)
    with pytest.raises(GraphError, match="no relation 'paper writes author'; the graph has: 'author writes"):
        split_pairs(graph, target=["paper writes author"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "tim"}, "by must be"),
        ({"by": "given"}, "by='given' needs edge data 'split'"),
        ({"by": "time"}, "no edge data 'time'; it has: year"),
        (
            {"by": "time", "key": "year"},
            r"no edge comes before val=0.05, its first time; times are 2000 … 20",
        ),
        ({"by": "time", "key": "year", "val": 2009, "test": 2003}, "got 2009 after 2003"),
        ({"val": 0.5, "test": 0.5}, "shares that leave some pairs"),
        ({"label": "sign"}, "label: the graph has no edge data 'sign'"),
    ],
    ids=str,
)
def test_what_cannot_be_split_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    graph = random_graph(both=False)
    graph = with_edge_data(graph, year=2000 + torch.arange(graph.num_edges) % 10)
    with pytest.raises(InputError, match=message) as refused:
        split_pairs(graph, **options)
    assert "\n" not in str(refused.value)


def test_splits_and_masks_that_cannot_be_are_refused() -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]])
    for data, message in (
        ({"split": torch.tensor([0, 3])}, "holds 3: 0 is train"),
        ({"train_mask": torch.tensor([1, 0])}, "must be one boolean an edge"),
        (
            {"val_mask": torch.tensor([True, False]), "test_mask": torch.tensor([True, True])},
            "1 edges are in two",
        ),
        ({"split": torch.tensor([-1, -1])}, "no edge of 'node edge node' is a target: none is in a split"),
    ):
        with pytest.raises(GraphError, match=message):
            split_pairs(with_edge_data(graph, **data))
    rated = with_edge_data(graph, rating=torch.full((2,), torch.nan))
    with pytest.raises(GraphError, match="none with a known 'rating' is in a split"):
        split_pairs(rated, label="rating")
    with pytest.raises(GraphError, match="is a target: the graph has none"):
        split_pairs(Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=3))
