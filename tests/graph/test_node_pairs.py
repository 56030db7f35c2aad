"""Pairs keep their rows together, and their keys whoever holds them."""

import torch

from weft.graph.node_pairs import Pairs


def make_pairs() -> Pairs:
    return Pairs(
        torch.tensor([0, 1, 2, 3]),
        torch.tensor([3, 2, 1, 0]),
        relation=torch.tensor([0, 1, 0, 1]),
        y=torch.tensor([1.0, 2.0, 3.0, 4.0]),
        data={"attr": torch.arange(8.0).reshape(4, 2)},
    )


def test_some_pairs_keep_the_keys_and_all_columns() -> None:
    some = make_pairs().take(torch.tensor([3, 1]))
    assert some.src.tolist() == [3, 1]
    assert some.dst.tolist() == [0, 2]
    assert some.keys.tolist() == [3, 1], "the numbers among all pairs"
    assert some.relation is not None
    assert some.relation.tolist() == [1, 1]
    assert some.y is not None
    assert some.y.tolist() == [4.0, 2.0]
    assert some.data["attr"].tolist() == [[6.0, 7.0], [2.0, 3.0]]
    assert some.take(torch.tensor([False, True])).keys.tolist() == [1]


def test_no_pairs_are_pairs_too() -> None:
    none = make_pairs().take(torch.zeros(0, dtype=torch.int64))
    assert len(none) == 0
    assert none.keys.tolist() == []
    assert none.time is None
    assert none.to("cpu").data["attr"].shape == (0, 2)
