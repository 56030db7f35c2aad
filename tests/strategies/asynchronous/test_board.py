"""The board gives what was handed out, forgets what nobody can ask for, and lets one compute at a time."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import pytest
import torch
from torch import Tensor

from weft.errors import TrainingError
from weft.strategies.asynchronous.board import Board, Ended, Learned, RowsKey, summed
from weft.strategies.asynchronous.choices import Epochs, Exactly, Newest
from weft.strategies.asynchronous.order import OrderLog


def board_of(staleness: int = 1, intervals: int = 2, free: bool = False) -> Board:
    choice = Newest(staleness) if free else Exactly(staleness)
    return Board(intervals, choice, OrderLog(None, {}, since=0))


def learned(value: float | None) -> Learned:
    return Learned(torch.tensor(1.0), [None if value is None else torch.tensor(value), None])


def test_rows_are_those_of_their_epoch_and_ages_are_told() -> None:
    board = board_of(2)
    for epoch in range(4):
        board.put(RowsKey("features", 0, 1), epoch, torch.tensor([epoch]))
    assert board.read(0, 3, "features", 0, [1])[0].tolist() == [1]
    assert board.read(0, 0, "features", 0, [1])[0].tolist() == [0]
    assert board.take_ages() == {0: 1, 2: 1}
    assert board.take_ages() == {}


def test_what_is_older_than_was_promised_is_not_read_whatever_chose_it() -> None:
    class Careless(Newest):
        def rows(self, interval: int, epoch: int, place: int, there: Sequence[Epochs]) -> list[int]:
            return [1, 5]

    board = Board(3, Careless(1), OrderLog(None, {}, since=0))
    for source in (1, 2):
        for epoch in (1, 5):
            board.put(RowsKey("features", 0, source), epoch, torch.tensor([epoch]))
    with pytest.raises(TrainingError, match="epoch 5 was to read rows of epoch 1, the oldest it may are 1"):
        board.read(0, 5, "features", 0, [1, 2])
    assert board.take_ages() == {}


@pytest.mark.parametrize(("staleness", "free", "oldest"), [(2, False, 2), (2, True, 2), (0, True, 1)])
def test_what_is_forgotten_can_not_be_asked_for(staleness: int, free: bool, oldest: int) -> None:
    board, key = board_of(staleness, free=free), RowsKey("features", 0, 1)
    weights: dict[str, Tensor] = {}
    for epoch in range(6):
        board.put(key, epoch, torch.tensor([epoch]))
        board.publish(epoch + 1, weights)
    least = 6 - oldest
    assert sorted(board.rows[key]) == [*range(least, 6)]
    assert sorted(board.versions) == [*range(least, 7)]


def test_gradients_add_up_in_the_order_of_intervals_and_none_stays_none() -> None:
    board = board_of()
    board.leave(1, 0, learned(2.0))
    board.leave(0, 0, learned(None))
    loss, values = summed(board.taken(0))
    assert float(loss) == 2.0
    assert values[0] is not None
    assert float(values[0]) == 2.0
    assert values[1] is None


def test_one_computes_at_a_time_and_who_waits_lets_others_go_on() -> None:
    board, inside, most = board_of(0, intervals=3), [0], [0]

    def work(interval: int) -> None:
        for epoch in range(5):
            board.enter(interval, epoch)
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.0005)
            inside[0] -= 1
            board.put(RowsKey("features", 0, interval), epoch, torch.tensor([epoch]))
            others = [other for other in range(3) if other != interval]
            board.read(interval, epoch, "features", 0, others)
            board.leave(interval, epoch, learned(None))
        with suppress(Ended):
            board.enter(interval, 5)

    board.publish(0, {})
    board.allow(4)
    threads = [threading.Thread(target=work, args=(interval,)) for interval in range(3)]
    for thread in threads:
        thread.start()
    for epoch in range(5):
        board.taken(epoch)
        board.publish(epoch + 1, {})
    board.end(Ended())
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert most == [1]
    assert board.take_ages() == {0: 30}


@pytest.mark.parametrize(
    ("free", "alone", "order"),
    [(False, True, [0, 0, 1, 1]), (False, False, [0, 1, 0, 1]), (True, True, [0, 1, 0, 1])],
)
def test_a_read_lets_those_behind_go_first_where_that_matters(
    free: bool, alone: bool, order: list[int]
) -> None:
    choice = Newest(1) if free else Exactly(1)
    board, went = Board(2, choice, OrderLog(None, {}, since=0), alone=alone), []
    for interval in (0, 1):
        board.put(RowsKey("features", 0, interval), 0, torch.tensor([0]))
    board.allow(1)

    def work(interval: int) -> None:
        board.enter(interval, 1)
        went.append(interval)
        board.put(RowsKey("features", 0, interval), 1, torch.tensor([1]))
        rows = board.read(interval, 1, "features", 0, [1 - interval])
        assert rows[0].tolist() == [int(free)]
        went.append(interval)
        board.leave(interval, 1, learned(None))
        with suppress(Ended):
            board.enter(interval, 2)

    threads = [threading.Thread(target=work, args=(interval,)) for interval in (0, 1)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 10
    while len(board._turns._waiting) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    board.publish(0, {})
    board.publish(1, {})
    board.completed(1)
    board.end(Ended())
    for thread in threads:
        thread.join(10)
    assert went == order


def test_who_would_be_first_waits_for_weights_that_are_there_in_a_moment() -> None:
    board = Board(2, Newest(1), OrderLog(None, {}, since=0), alone=True)
    board.publish(0, {})
    board.allow(5)
    assert board._opened(0, 0) == 0
    board.entered = 0
    board.leave(0, 0, learned(None))
    assert board._opened(0, 1) == 0, "somebody is late"
    board.leave(1, 0, learned(None))
    assert board._opened(0, 1) is None, "all are done"
    board.taken(0)
    assert board._opened(0, 1) is None, "the weights are about to be given out"
    board.publish(1, {})
    assert board._opened(0, 1) == 1


def test_everybody_who_waits_hears_of_the_end() -> None:
    board, told = board_of(), []

    def wait() -> None:
        try:
            board.read(0, 0, "features", 0, [1])
        except Ended:
            told.append("ended")

    thread = threading.Thread(target=wait)
    thread.start()
    board.end(Ended())
    thread.join(10)
    assert told == ["ended"]


def test_no_epoch_begins_behind_the_last_that_may() -> None:
    board = board_of(3)
    board.publish(0, {})
    board.allow(1)
    assert board.enter(0, 1) == (0, {})
    assert board.hold() == 1
    assert board.last == 1


def test_who_was_given_the_turn_is_not_held() -> None:
    board = board_of(0, intervals=1)
    board.publish(0, {})
    thread = threading.Thread(target=board.enter, args=(0, 0))
    thread.start()
    deadline = time.monotonic() + 10
    while not board._turns._waiting and time.monotonic() < deadline:
        time.sleep(0.001)
    with board._changed:  # the thread cannot wake
        board.allow(3)
        assert board._turns.holder == 0
        assert board.hold() == 0
    thread.join(10)
    assert not thread.is_alive()
