"""A model that draws from torch's generator is found; parts that leave, or try something out, are not."""

from collections.abc import Iterator

import pytest
import torch

from weft.errors import InputError
from weft.train.workers.draws import DrawCheck


@pytest.fixture(autouse=True)
def _generator() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        yield


def test_a_model_that_draws_in_every_epoch_is_refused() -> None:
    draws = DrawCheck(3)
    torch.manual_seed(3)
    for _ in range(2):
        torch.rand(1)
        draws.check()
    torch.rand(1)
    with pytest.raises(InputError, match="the model draws from torch's own generator"):
        draws.check()


def test_a_generator_that_is_put_back_is_no_draw() -> None:
    before = torch.get_rng_state()
    draws = DrawCheck(3)
    for _ in range(3):
        torch.manual_seed(3)  # a part begins
        draws.check()
        torch.set_rng_state(before)  # another has left
        draws.check()
        torch.rand(1)  # and one tries a message out
        draws.check()
        torch.set_rng_state(before)
        draws.check()
