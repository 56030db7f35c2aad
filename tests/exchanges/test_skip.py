"""Skipped rows, by hand: who sends in which step, and what the others read meanwhile."""

from typing import Any

import torch
from post import Post

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.exchanges.drift import Drift
from weft.exchanges.skip import Skip


def ring(size: int, rank: int) -> HaloPlan:
    """Return the plan by which each member, with one row, sends it to all others."""
    others = [member for member in range(size) if member != rank]
    return HaloPlan(
        num_rows=1,
        send_rows=torch.zeros(len(others), dtype=torch.int64),
        send_ids=torch.full((len(others),), rank),
        send_counts=[int(member != rank) for member in range(size)],
        recv_ids=torch.tensor(others),
        recv_counts=[int(member != rank) for member in range(size)],
        order=None,
    )


class Steps:
    """Three members that take steps together; the row of member m in step s is 10 s + m."""

    def __init__(self, **options: Any) -> None:
        self.post = Post(3)
        clock = torch.tensor([0, 0, 0])
        self.exchanges = [Skip(ring(3, m.rank), m, clock, **options) for m in self.post.members]
        self.step = 0

    def __call__(self, way: str = "pull") -> tuple[set[int], list[list[float]]]:
        """Return who sent rows, or gradients (`push`), in a step, and what each member read."""
        calls = [len(member.sent) for member in self.post.members]
        arrivals = []
        for rank, exchange in enumerate(self.exchanges):
            exchange.begin_step()
            rows = torch.full((1 if way == "pull" else 2, 1), 10.0 * self.step + rank)
            arrivals.append(getattr(exchange, way)(rows, 0))
        read = [rows.wait().flatten().tolist() for rows in arrivals]
        for exchange in self.exchanges:
            exchange.end_step()
        self.step += 1
        senders = {
            rank
            for rank, (member, before) in enumerate(zip(self.post.members, calls))
            if any(sum(counts) for counts in member.sent[before:])
        }
        return senders, read


def test_before_rows_are_two_steps_old_members_send_in_turn() -> None:
    steps = Steps(age=2)
    taken = [steps() for _ in range(8)]
    assert [senders for senders, _ in taken] == [{0, 1, 2}, {2}, {1}, {0}, {2}, {1}, {0}, {2}]
    last = dict.fromkeys(range(3), 0)
    for step, (senders, read) in enumerate(taken):
        last |= dict.fromkeys(senders, step)
        assert all(step - sent <= 2 for sent in last.values()), "no row is used more than two steps old"
        for rank, rows in enumerate(read):
            assert rows == [10.0 * last[m] + m for m in range(3) if m != rank]


def test_every_third_step_all_send_together() -> None:
    steps = Steps(interval=3)
    assert [steps()[0] for _ in range(7)] == [{0, 1, 2}, set(), set(), {0, 1, 2}, set(), set(), {0, 1, 2}]


def test_gradients_are_sent_every_time_unless_they_are_skipped_too() -> None:
    fresh, skipped = Steps(interval=3), Steps(interval=3, gradients=True)
    for step in range(7):
        senders, read = fresh("push")
        assert senders == {0, 1, 2}
        assert read == [[20.0 * step + 3 - rank] for rank in range(3)]
        senders, read = skipped("push")
        assert senders == ({0, 1, 2} if step % 3 == 0 else set())
        assert read == [[20.0 * (step - step % 3) + 3 - rank] for rank in range(3)]


def test_without_a_criterion_every_fourth_step_all_send() -> None:
    steps = Steps()
    assert [bool(steps()[0]) for _ in range(6)] == [True, False, False, False, True, False]


def test_rows_that_stand_still_are_not_sent_again_whatever_the_bound() -> None:
    group, ids = Group.alone(), torch.zeros(1, dtype=torch.int64)
    to_itself = HaloPlan(1, ids, ids, [1], ids, [1], None)
    skip = Skip(to_itself, group, torch.zeros(3, dtype=torch.int64), change=0.0)
    made = []
    for value in (1.0, 1.0, 2.0, 2.0):
        skip.begin_step()
        assert skip.pull(torch.full((1, 1), value), 0).wait().item() == value
        skip.end_step()
        made.append(group.ledger.decisions["made"])
    assert made == [1, 1, 2, 2]


def test_a_measured_error_moves_the_bound_on_the_change_within_limits() -> None:
    skip = Steps(change=0.1).exchanges[0]
    skip.adapt(Drift([0.5], []))
    assert skip.change == 0.1, "without a budget nothing is chosen"
    skip.budget(0.04)
    for error, change in [(0.04, 0.1), (0.16, 0.05), (100.0, 0.025), (0.0, 0.025), ([], 0.025)]:
        skip.adapt(Drift([error] if error != [] else [], []))
        assert abs(skip.change - change) < 1e-12
    loose = Steps(change=0.1).exchanges[0]
    loose.budget(2.5)
    for _ in range(9):
        loose.adapt(Drift([0.1], []))
    assert loose.change == 2.0, "as much as rows that turned around have changed"


def test_a_bound_that_broke_the_budget_is_not_tried_again_nor_after_a_checkpoint() -> None:
    first, second = (Steps(change=0.1).exchanges[0] for _ in range(2))
    for skip in (first, second):
        skip.budget(0.04)
    first.adapt(Drift([0.05], []))
    assert first.change is not None
    assert first.change < 0.09
    second.load_state(first.state())
    for skip in (first, second):
        for _ in range(5):
            skip.adapt(Drift([0.001], []))
        assert skip.change is not None
        assert abs(skip.change - 0.09) < 1e-12
