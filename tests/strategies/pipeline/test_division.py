"""Who runs what: stages on ranks, and divisions that do not fit."""

import pytest

from weft.errors import RecipeError
from weft.strategies.pipeline.division import StageDivision, division_of


def test_replicas_take_micro_batches_by_turns() -> None:
    division = StageDivision((2, 1, 1), (1, 2, 1))
    assert [division.place(rank) for rank in range(4)] == [(0, 0), (1, 0), (1, 1), (2, 0)]
    assert [division.holder(1, micro) for micro in range(4)] == [1, 2, 1, 2]
    assert [division.layers_of(stage) for stage in range(3)] == [range(2), range(2, 3), range(3, 4)]


def test_input_replicas_share_what_is_in_flight() -> None:
    assert StageDivision((1, 1), (3, 1)).depths[0] == 2  # ceil(4 workers / 3 of the first stage)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"\[1, 1\] are 2 layers, the model has 3"):
        division_of([1, 1], [1, 1], depth=3, workers=2)
    with pytest.raises(RecipeError, match=r"2 stages of 1 \+ 2 workers takes 3 workers, there are 2"):
        division_of([1, 1], [1, 2], depth=2, workers=2)
