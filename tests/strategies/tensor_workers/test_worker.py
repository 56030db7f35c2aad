"""A worker does named operators, pulls each weight once a version, and nothing else."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from weft.errors import WeftError
from weft.strategies.tensor_workers import worker
from weft.strategies.tensor_workers.frames import Frame, receive, send
from weft.strategies.tensor_workers.process_worker import weights_asked
from weft.strategies.tensor_workers.worker import serve

ROWS, WEIGHT = torch.randn(6, 4), torch.randn(3, 4)


class Served:
    """A worker in a thread, and the other end of its socket."""

    def __init__(self) -> None:
        self.stream, self.own = socket.socketpair()
        self.stream.settimeout(10)
        self.raised: list[BaseException] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        assert receive(self.stream).kind == "ready"

    def _serve(self) -> None:
        try:
            serve(self.own)
        except (OSError, WeftError) as error:
            self.raised.append(error)

    def ask(self, name: str, arrays: list[torch.Tensor], weights: dict[str, torch.Tensor]) -> tuple[Any, int]:
        """Return the arrays of an answer, and how many weights were pulled."""
        send(self.stream, Frame("task", 5, name, [*weights], arrays))
        pulls = 0
        while (frame := receive(self.stream)).kind == "pull":
            pulls += len(frame.weights)
            send(self.stream, weights_asked(frame, weights))
        assert (frame.kind, frame.number) == ("answer", 5)
        return frame.arrays, pulls


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.stream.close()
    made.thread.join(10)
    made.own.close()


def test_weights_are_pulled_once_a_version_and_the_oldest_forgotten(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "KEPT", 2)
    found = []
    for version in (0, 0, 1, 0, 2, 0, 1):
        (made,), pulls = served.ask("apply_vertex", [ROWS], {f"{version}.w": WEIGHT + version})
        assert torch.equal(made, F.linear(ROWS, WEIGHT + version))
        found.append(pulls)
    assert found == [1, 0, 1, 0, 1, 0, 1]


def test_gradients_are_those_of_autograd(served: Served) -> None:
    columns, towards = torch.randn(3, 2), [torch.randn(6, 3), torch.randn(6, 1), torch.randn(6, 1)]
    leaves = [each.clone().requires_grad_() for each in (ROWS, columns, WEIGHT)]
    value = leaves[0] @ leaves[2].t()
    scores = (value @ leaves[1]).chunk(2, dim=1)
    expected = torch.autograd.grad([value, *scores], leaves, towards)
    made, _ = served.ask("apply_edge", [ROWS, columns], {"w": WEIGHT})
    found, _ = served.ask("apply_edge_gradient", [ROWS, columns, *towards], {"w": WEIGHT})
    for mine, theirs in zip([*made, *found], [value, *scores, *expected], strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("name", ["eval", "", "os.system"])
def test_what_has_no_name_here_is_not_done(served: Served, name: str) -> None:
    send(served.stream, Frame("task", 1, name))
    served.thread.join(10)
    assert "which it does not do" in str(served.raised[0])


def test_other_weights_than_were_asked_for_are_refused(served: Served) -> None:
    send(served.stream, Frame("task", 1, "apply_vertex", ["0.w"], [ROWS]))
    assert [*receive(served.stream).weights] == ["0.w"]
    send(served.stream, Frame("weights", 1, weights=["1.w"], arrays=[WEIGHT]))
    served.thread.join(10)
    assert "asked for weights, got weights ['1.w']" in str(served.raised[0])
