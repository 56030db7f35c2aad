"""What each form reads of what is there, and when it waits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from weft.errors import FormatError, TrainingError
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
    replayed = replay_of(tmp_path, [("enter", 0, 3, 2), ("read", 0, 3, [2, 4])])
    assert replayed.weights(0, 3, [1, 2, 3]) == 2
    assert replayed.weights(0, 3, [1, 3]) is None, "others are no replay"
    assert replayed.rows(0, 3, 0, [[1, 2, 3], [3, 4]]) == [2, 4]
    assert replayed.rows(0, 3, 0, [[3], [3, 4]]) is None


@pytest.mark.parametrize("line", [("enter", 0, 3, 1), ("enter", 0, 3, 4)])
def test_a_replay_does_not_wait_for_weights_that_no_run_began_with(
    line: tuple[str, int, int, int], tmp_path: Path
) -> None:
    replayed = replay_of(tmp_path, [line])
    with pytest.raises(FormatError, match="epoch 4 of interval 0 reads what no run with staleness = 1 does"):
        replayed.weights(0, 3, [2, 3])


@pytest.mark.parametrize("epoch", [1, 5])
def test_a_replay_does_not_wait_for_rows_that_are_forgotten_or_never_come(epoch: int, tmp_path: Path) -> None:
    replayed = replay_of(tmp_path, [("read", 0, 3, [3, epoch])])
    with pytest.raises(FormatError, match="epoch 4 of interval 0 reads what no run with staleness = 1 does"):
        replayed.rows(0, 3, 0, [[2, 3], [2, 3]])


def test_a_replay_of_another_cut_is_refused(tmp_path: Path) -> None:
    replayed = replay_of(tmp_path, [("read", 0, 3, [3, 3])])
    with pytest.raises(FormatError, match="tells of another graph, cut or model"):
        replayed.rows(0, 3, 0, [[3]])


def replay_of(folder: Path, lines: list[tuple[Any, ...]]) -> Replayed:
    log = OrderLog(folder, {"rank": 0, "workers": 1, "intervals": 1, "staleness": 1, "seed": 0}, since=0)
    for line in lines:
        log.write(*line)
    log.close()
    return Replayed(Order(file_of(folder, 0), {"rank": 0}), 1)
