"""What layers ask of a block, as a value: checked once, weighed, and without what kernels need not know."""

from typing import Any

import pytest
import torch

from weft.errors import GraphError, InputError
from weft.graph import Block
from weft.graph.message.reduction import Aggregation, Propagation, times_rows


def test_a_weighed_message_counts_for_all_edges_that_its_edge_stands_for() -> None:
    how = Propagation(lambda u, w: u * w, [torch.ones(2, 1)], params=[torch.tensor(3.0)])
    weighed = how.weighed(torch.tensor([2.0, 5.0]))
    assert weighed.counts == (1, 0, 1, 1)
    made = weighed.message(torch.ones(2, 1), torch.tensor([2.0, 5.0]), torch.tensor(3.0))
    assert made.flatten().tolist() == [6, 15]


def test_a_weighed_row_keeps_its_own_weight_beside() -> None:
    stands_for = torch.tensor([2.0, 5.0])
    for weight, expected in ((None, [2, 5]), (torch.tensor([3.0, 0.5]), [6, 2.5])):
        weighed = Aggregation(weight=weight).weighed(stands_for, torch.float32).weight
        assert weighed is not None
        assert weighed.tolist() == expected


def test_only_sums_and_means_add_up() -> None:
    names = ("sum", "mean", "max", "min", "softmax")
    assert [name for name in names if Propagation(lambda u: u, reduce=name).adds] == ["sum", "mean"]
    assert [name for name in names[:4] if Aggregation(name).adds] == ["sum", "mean"]


def test_what_an_extreme_does_not_take_is_refused() -> None:
    with pytest.raises(InputError, match="takes no weight and no scale"):
        Aggregation("max", weight=torch.ones(3)).check_plain()
    with pytest.raises(GraphError, match="sum, mean, max or min, got 'softmax'"):
        Aggregation("softmax")


def test_rows_of_any_shape_are_scaled_by_a_number_each() -> None:
    rows = torch.ones(2, 3, 4)
    assert times_rows(rows, None) is rows
    assert times_rows(rows, torch.tensor([2.0, 3.0]))[:, 0, 0].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"src": torch.ones(2, 1)}, r"src is one tensor; give a tuple, src=\(h,\), with a comma"),
        ({"params": torch.ones(2, 1)}, r"params is one tensor; give a tuple, params=\(h,\), with a comma"),
        ({"dst": None}, "dst is None, not a tuple of tensors"),
        ({"edge": (each for each in ())}, "edge is generator, not a tuple of tensors"),
        ({"src": ([1.0, 2.0],)}, r"src\[0\] is list of float, float, not a tensor of rows"),
        ({"src": (torch.ones(2), None)}, r"src\[1\] is None, not a tensor of rows"),
        ({"src": (torch.ones(()),)}, r"src\[0\] is a tensor of shape \[\], not a tensor of rows"),
        ({"params": (0.5,)}, r"params\[0\] is float, not a tensor"),
        ({"message": torch.ones(2, 1)}, r"message is a tensor of shape \[2, 1\], not a function of an edge"),
    ],
)
def test_what_is_not_given_as_tensors_is_told_in_one_line(given: dict[str, Any], told: str) -> None:
    block = Block(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), num_src=2)
    with pytest.raises(InputError, match=rf"^propagate: {told}$"):
        block.propagate(**{"message": lambda u: u, **given})
