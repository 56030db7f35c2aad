"""What each form reads of what is there, and when it waits."""

from collections.abc import Sequence

import pytest

from weft.errors import TrainingError
from weft.strategies.asynchronous.choices import Exactly, Newest, ages_of, check_ages


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
    assert newest.rows(0, 3, 0, [[0], [4]]) is None
    assert newest.rows(0, 3, 0, [[1], [4]]) == [1, 4]


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
