"""A parameter server: synchronous without staleness, bounded with it, and nobody waits for ever."""

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from weft.errors import WorkerLost
from weft.strategies.records.server import Server

RATE = 0.5


def server(staleness: int, *, workers: int = 2, timeout: float = 30.0) -> Server:
    """Return the server of two parameters of 2 and 1 values, all 0."""
    share = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
    optimizer = torch.optim.SGD(share, lr=RATE)
    return Server(share, optimizer, workers=workers, staleness=staleness, timeout=timeout)


def message(*values: float, there: tuple[float, float] = (1.0, 1.0)) -> Tensor:
    return torch.tensor([*values, *there, 1.0])


class Pushing(threading.Thread):
    """A worker that pushes once; `found` are the weights that it is given."""

    def __init__(self, held: Server, worker: int, pushed: Tensor) -> None:
        super().__init__(daemon=True)
        self.held, self.worker, self.pushed = held, worker, pushed
        self.found: Any = None
        self.start()

    def run(self) -> None:
        self.found = self.held.push(self.worker, self.pushed)

    def waits(self) -> bool:
        """Return whether it is not let go within a while."""
        self.join(0.3)
        return self.is_alive()

    def weights(self) -> list[float]:
        self.join(30)
        assert self.found is not None
        return list(self.found.tolist())


def test_without_staleness_a_step_is_on_the_sum_of_all_workers() -> None:
    held = server(0)
    first = Pushing(held, 0, message(1.0, 2.0, 3.0))
    assert first.waits()
    second = Pushing(held, 1, message(10.0, 20.0, 30.0))
    expected = [-RATE * value for value in (11.0, 22.0, 33.0)]
    assert first.weights() == second.weights() == expected


@pytest.mark.parametrize("staleness", [1, 3])
def test_nobody_is_more_than_so_many_steps_ahead(staleness: int) -> None:
    held = server(staleness)
    for step in range(1, staleness + 1):
        assert Pushing(held, 0, message(1.0, 0.0, 0.0)).weights() == [-RATE * step, 0.0, 0.0]
    ahead = Pushing(held, 0, message(1.0, 0.0, 0.0))
    assert ahead.waits()
    behind = Pushing(held, 1, message(0.0, 0.0, 4.0))
    # All gradients are in, whoever sent them, and go as far as they would in one step together.
    expected = [-RATE * (staleness + 1), 0.0, -RATE * 4.0]
    assert ahead.weights() == behind.weights() == expected
    assert Pushing(held, 1, message(0.0, 0.0, 0.0)).weights() == expected  # the slower one never waits


def test_a_parameter_without_gradient_stays() -> None:
    share = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(1))]
    decays = torch.optim.SGD(share, lr=RATE, weight_decay=1.0)
    held = Server(share, decays, workers=1, staleness=0, timeout=30.0)
    assert held.push(0, message(0.0, 0.0, 0.0, there=(1.0, 0.0))).tolist() == [0.5, 0.5, 1.0]


def test_a_worker_that_sends_nothing_is_named() -> None:
    held = server(0, timeout=0.2)
    with pytest.raises(WorkerLost, match=r"worker 1 sent no gradients for 0.2 s \(step 0\)"):
        held.push(0, message(1.0, 1.0, 1.0))


def test_a_failure_reaches_whoever_waits() -> None:
    held = server(2)
    held.fail(RuntimeError("gone"))
    with pytest.raises(RuntimeError, match="gone"):
        held.push(0, message(1.0, 1.0, 1.0))
