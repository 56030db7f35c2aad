"""What each form reads of what is there, and when it waits."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from weft.errors import TrainingError
from weft.strategies.asynchronous.choices import Exactly, Newest, Replayed, ages_of, check_ages
from weft.strategies.asynchronous.order import Order, OrderLog, file_of


@pytest.mark.parametrize(
    ("epoch", "there", "read"),
    [
        (0, [[0], [0, 1]], [0, 0]),
        (1, [[0], [0, 1]], [0, 0]),
        (3, [[0, 1], [2, 3]], None),
        (3, [[1, 2, 3], [1]], [1, 1]),
    ],
)
def test_exact_ages_are_exact(epoch: int, there: list[Sequence[int]], read: list[int] | None) -> None:
    assert Exactly(2).rows(0, epoch, 0, there) == read


def test_a_free_run_reads_the_newest_and_waits_for_none_but_those_too_old() -> None:
    newest = Newest(1)
    assert newest.rows(0, 0, 0, [[], [0]]) is None
    assert newest.rows(0, 3, 0, [[1, 2], [4]]) == [2, 4]
    assert newest.rows(0, 3, 0, [[1], [4]]) is None
    assert newest.rows(0, 3, 0, [[2], [4]]) == [2, 4]
    assert Newest(2).rows(0, 3, 0, [[1], [4]]) == [1, 4]
    assert Newest(0).rows(0, 3, 0, [[2], [3]]) == [2, 3], "who comes first mixes two epochs"
    assert Newest(0).rows(0, 3, 0, [[1], [3]]) is None


def test_an_epoch_begins_once_the_weights_have_seen_all_but_the_last_few() -> None:
    assert Exactly(1).weights(0, 3, [0, 1]) is None
    assert Exactly(1).weights(0, 3, [1, 2, 3]) == 2
    assert Newest(1).weights(0, 3, [0, 1]) is None
    assert Newest(1).weights(0, 3, [1, 2, 3]) == 3


def test_ages_are_counted_and_bounded() -> None:
    assert ages_of(5, [5, 4, 4, 6]) == {0: 1, 1: 2, -1: 1}
    check_ages(5, [4, 6], 1)
    with pytest.raises(TrainingError, match="epoch 5 was to read rows of epoch 3, the oldest it may are 1"):
        check_ages(5, [4, 3], 1)


def test_a_replay_begins_an_epoch_with_the_weights_and_rows_of_then(tmp_path: Path) -> None:
    log = OrderLog(tmp_path, {"rank": 0, "workers": 1, "intervals": 1, "staleness": 1, "seed": 0}, since=0)
    log.write("enter", 0, 3, 2)
    log.write("read", 0, 3, [2, 1])
    log.close()
    replayed = Replayed(Order(file_of(tmp_path, 0), {"rank": 0}), 1)
    assert replayed.weights(0, 3, [1, 2, 3]) == 2
    assert replayed.weights(0, 3, [1, 3]) is None, "others are no replay"
    assert replayed.rows(0, 3, 0, [[1, 2, 3], [1, 2]]) == [2, 1]
    assert replayed.rows(0, 3, 0, [[3], [1, 2]]) is None
