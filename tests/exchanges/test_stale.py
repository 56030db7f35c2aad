"""Rows of the step before, by hand: read a step late, smoothed without a pull to zero."""

from typing import Any

import torch
from post import Came, Post

from weft.comm.plan import HaloPlan
from weft.exchanges.stale import Stale, _Channel


def rows(*values: float) -> torch.Tensor:
    return torch.tensor(values)[:, None]


def test_smoothed_rows_are_a_mean_of_those_that_came() -> None:
    channel = _Channel(0.5, rows(0.0))
    came = [8.0, 4.0, 16.0]
    expected = [8.0, (0.25 * 8 + 0.5 * 4) / 0.75, (0.125 * 8 + 0.25 * 4 + 0.5 * 16) / 0.875]
    for value, mean in zip(came, expected):  # m / (1 − γ^k)
        channel.arriving = Came(rows(value))
        assert torch.allclose(channel.read(), rows(mean))
        assert torch.equal(channel.read(), channel.read()), "the same when asked again"
    assert channel.count == 3


def test_without_smoothing_rows_are_those_that_came_last() -> None:
    channel = _Channel(0.0, rows(0.0))
    channel.arriving = Came(rows(8.0))
    assert channel.read().item() == 8.0
    channel.sent = Came(rows(4.0))
    assert channel.read().item() == 8.0, "what is sent in a step is read in the next"
    channel.turn()
    assert (channel.read().item(), channel.age) == (4.0, 1)


def taken(**options: Any) -> tuple[list[list[float]], list[list[float]]]:
    """Return the rows that each of two members read, and the gradients it got, in each of four steps."""
    post, clock, one = Post(2), torch.tensor([0, 0, 0]), torch.tensor([0])
    exchanges = [
        Stale(
            HaloPlan(
                num_rows=1,
                send_rows=one,
                send_ids=torch.tensor([m.rank]),
                send_counts=[m.rank, 1 - m.rank],
                recv_ids=torch.tensor([1 - m.rank]),
                recv_counts=[m.rank, 1 - m.rank],
                order=None,
            ),
            m,
            clock,
            **options,
        )
        for m in post.members
    ]
    read, returned = [], []
    for step in range(4):
        pulled = [each.pull(rows(10.0 * step + rank), 0) for rank, each in enumerate(exchanges)]
        read.append([arrival.wait().item() for arrival in pulled])
        pushed = [each.push(rows(-10.0 * step - rank), 0) for rank, each in enumerate(exchanges)]
        returned.append([arrival.wait().item() for arrival in pushed])
        for each in exchanges:
            each.end_step()
    return read, returned


def test_two_members_read_the_step_before_and_sum_its_gradients() -> None:
    read, returned = taken()
    assert read == [[1.0, 0.0], [1.0, 0.0], [11.0, 10.0], [21.0, 20.0]]
    assert returned == [[-1.0, 0.0], [-1.0, 0.0], [-11.0, -10.0], [-21.0, -20.0]]


def test_rows_and_gradients_are_smoothed_each_where_asked() -> None:
    plain, by_rows, by_gradients = taken(), taken(smooth_features=0.5), taken(smooth_gradients=0.5)
    assert by_rows[0] != plain[0]
    assert by_rows[1] == plain[1]
    assert by_gradients[0] == plain[0]
    assert by_gradients[1] == [[-value for value in step] for step in by_rows[0]]
