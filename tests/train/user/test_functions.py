"""Loss and metrics of the user's own: functions, or names of functions."""

from typing import Any

import pytest
import torch

from weft.errors import InputError, RecipeError
from weft.train.settings import Settings
from weft.train.user.functions import Own

OUTPUTS, Y = torch.tensor([[1.0, 3.0], [2.0, 0.0]]), torch.tensor([1, 0])


def test_names_are_found_and_modules_named_by_their_class_are_made() -> None:
    settings = Settings(loss="torch.nn:CrossEntropyLoss", metrics={"sure": "own_code:confidence"})
    own = Own.of(settings)
    assert own.loss is not None
    mean = torch.nn.functional.cross_entropy(OUTPUTS, Y)
    assert float(own.loss.summed(OUTPUTS, Y)) == pytest.approx(2 * float(mean))
    assert isinstance(own.metrics["sure"](OUTPUTS, Y), float)
    assert Own.of(Settings()) == Own()


def test_what_is_given_counts_before_what_is_named() -> None:
    settings = Settings(loss="nowhere:loss", metrics={"mine": "nowhere:metric"})
    given: dict[str, Any] = {"mine": lambda outputs, y: torch.tensor(3.0)}
    own = Own.of(settings, loss=lambda outputs, y: outputs.sum(), metrics=given)
    assert own.metrics["mine"](OUTPUTS, Y) == 3.0


def test_what_is_no_function_or_gives_no_number_is_one_line() -> None:
    with pytest.raises(
        RecipeError, match=r"train\.loss: expected a function loss\(outputs, y\), got a float"
    ):
        Own.of(Settings(loss="math:pi"))
    own = Own.of(Settings(metrics={"mine": "x:y"}), metrics={"mine": lambda outputs, y: outputs})
    with pytest.raises(InputError, match=r"train\.metrics\.mine: expected one number, got a Tensor"):
        own.metrics["mine"](OUTPUTS, Y)
