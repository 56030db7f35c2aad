"""What layers ask of a block, as a value: checked once, weighed, and without what kernels need not know."""

import pytest
import torch

from weft.errors import GraphError, InputError
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
