"""Settings of a run that cannot be are refused with their key."""

import pytest
import torch

from weft.errors import RecipeError
from weft.train.settings import Settings, check_validation, choose_device


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"momentum": 0.9}, r"train\.momentum: 'adam' takes none; use optimizer = 'sgd'"),
        ({"metrics": {"accuracy": "a:b"}}, r"train\.metrics\.accuracy: weft has that name already"),
        ({"metrics": {"mrr": "a:b"}}, r"train\.metrics\.mrr: weft has that name already"),
        ({"metrics": {"loss": "a:b"}}, r"train\.metrics\.loss: weft has that name already"),
        (
            {"metrics": {"mine": "function"}},
            r"train\.metrics\.mine: expected a function as 'module:function'",
        ),
    ],
)
def test_mistakes_are_one_line(settings: dict[str, object], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        Settings(**settings)  # type: ignore[arg-type]


def test_momentum_is_for_sgd() -> None:
    assert Settings(optimizer="sgd", momentum=0.9).momentum == 0.9


@pytest.mark.parametrize(
    ("settings", "key"), [({"patience": 3}, "patience"), ({"schedule": "plateau"}, "schedule")]
)
def test_what_goes_by_validation_needs_it(settings: dict[str, object], key: str) -> None:
    asked = Settings(**settings)  # type: ignore[arg-type]
    check_validation(asked, ["train", "val"])
    check_validation(Settings(), ["train"])
    with pytest.raises(RecipeError, match=rf"train\.{key}: goes by validation nodes"):
        check_validation(asked, ["train", "test"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_device_that_is_not_there_is_refused() -> None:
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    for name, said in (
        ("abacus", "expected auto, cpu, cuda or cuda:N"),
        ("cuda:1", "this machine has no CUDA devices, use 'cpu'"),
        ("meta", "is not supported; use 'cpu' or 'cuda'"),
        ("cpu:1", "is not supported"),
    ):
        with pytest.raises(RecipeError, match=rf"train\.device: .*{said}"):
            choose_device(name)
