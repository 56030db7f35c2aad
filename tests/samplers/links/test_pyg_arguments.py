"""PyG's words for links, negatives and fanouts in weft's terms; what cannot be is one line."""

import pytest
import torch

from weft.errors import GraphError, InputError
from weft.graph import Graph
from weft.samplers.links.pyg_arguments import NegativeSampling, by_hop, check_as_is, links_of

LIKES = ("user", "likes", "item")
PLAIN = Graph.from_edges([[0, 1, 2], [1, 2, 0]])
TYPED = Graph.from_types(
    {"item": {"num_nodes": 3}, "user": {"num_nodes": 2}},
    {LIKES: torch.tensor([[0, 1], [2, 0]]), ("item", "near", "item"): torch.tensor([[0], [1]])},
)


def test_links_are_all_edges_or_those_given_as_global_ids() -> None:
    assert links_of(PLAIN, None)[1:][0].tolist() == [0, 1, 2]
    assert links_of(PLAIN, [[0], [2]])[2].tolist() == [2]
    item, user = (TYPED.rows_of_type(name).start for name in ("item", "user"))
    kind, src, dst = links_of(TYPED, LIKES)
    assert (kind, src.tolist(), dst.tolist()) == (LIKES, [user, user + 1], [item + 2, item])
    kind, src, dst = links_of(TYPED, (LIKES, torch.tensor([[1], [1]])))
    assert (src.tolist(), dst.tolist()) == ([user + 1], [item + 1])


@pytest.mark.parametrize(
    ("graph", "given", "said"),
    [
        (PLAIN, [[0.5], [1.0]], r"expected ids \[2, n\]"),
        (PLAIN, [0, 1], r"expected ids \[2, n\], got torch.int64 of shape \[2\]"),
        (PLAIN, [[0], [3]], "expected targets 0 … 2, got 3"),
        (PLAIN, [[-1], [0]], "expected sources 0 … 2, got -1"),
        (TYPED, (LIKES, [[2], [0]]), "expected sources 0 … 1, got 2"),
        (TYPED, ("user", "hates", "item"), r"expected \(\(source, name, target\), index\) of"),
        (TYPED, None, "got None"),
    ],
)
def test_links_that_cannot_be_are_refused(graph: Graph, given: object, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        links_of(graph, given)


def test_negatives_are_asked_for_by_a_mode_a_dict_or_a_ratio() -> None:
    assert NegativeSampling.of(None, None) is None
    assert NegativeSampling.of(None, 0.0) is None
    made = [NegativeSampling.of("binary", None), NegativeSampling.of(None, 2.5)]
    made += [NegativeSampling.of({"mode": "triplet", "amount": 3}, None)]
    assert [(each.mode, each.amount) for each in made if each] == [
        ("binary", 1),
        ("binary", 2.5),
        ("triplet", 3),
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ternary", "expected 'binary', 'triplet' or dict"),
        ({"mode": "binary", "amout": 2}, "expected 'binary', 'triplet' or dict"),
        ({"mode": "binary", "amount": 0}, "amount must be a number above 0, got 0"),
        ({"mode": "triplet", "amount": 1.5}, "amount must be a whole number for triplets above 0"),
        ({"mode": "triplet", "src_weight": torch.ones(2)}, "triplets keep their sources"),
    ],
)
def test_negatives_that_cannot_be_are_refused(given: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        NegativeSampling.of(given, None)


def test_fanouts_by_relation_are_a_table_a_hop() -> None:
    assert by_hop([3, 2]) == [3, 2]
    assert by_hop({LIKES: [3, 2], "near": [1, 0]}) == [{LIKES: 3, "near": 1}, {LIKES: 2, "near": 0}]
    with pytest.raises(InputError, match="as many for each relation, one a hop"):
        by_hop({LIKES: [3, 2], "near": [1]})


def test_what_has_one_value_here_is_taken_out_and_another_one_refused() -> None:
    options = {"pin_memory": False, "drop_last": True}
    check_as_is(options, timed=False)
    assert options == {"drop_last": True}
    with pytest.raises(InputError, match="pin_memory=True: weft's LinkNeighborLoader has False alone"):
        check_as_is({"pin_memory": True}, timed=False)
    check_as_is({"disjoint": True}, timed=True)
    with pytest.raises(InputError, match="disjoint=True"):
        check_as_is({"disjoint": True}, timed=False)
    with pytest.raises(InputError, match="takes no 'droplast'"):
        check_as_is({"droplast": True}, timed=False)
