"""What runs on a node of Ray does named operators on bytes, and asks for weights that it does not have."""

import pytest
import torch
import torch.nn.functional as F

from weft import __version__
from weft.errors import FormatError, WeftError
from weft.strategies.tensor_workers.frames import Frame, decoded, encoded
from weft.strategies.tensor_workers.ray_worker import TensorActor

ROWS, WEIGHT, BIAS = torch.randn(6, 4), torch.randn(3, 4), torch.randn(3)
TASK = Frame("task", 5, "apply_vertex", ["0.w", "0.b"], [ROWS])


def test_weights_are_asked_for_together_and_once() -> None:
    actor = TensorActor()
    assert decoded(actor.ready()).name == __version__
    pull = decoded(actor.run(encoded(TASK)))
    assert (pull.kind, pull.number, pull.weights) == ("pull", 5, ["0.w", "0.b"])
    given = encoded(Frame("weights", 5, weights=["0.w", "0.b"], arrays=[WEIGHT, BIAS]))
    for held in (actor.give(given), actor.run(encoded(TASK))):
        answer = decoded(held)
        assert (answer.kind, answer.number) == ("answer", 5)
        assert torch.equal(answer.arrays[0], F.linear(ROWS, WEIGHT, BIAS))


def test_what_is_no_task_is_refused() -> None:
    with pytest.raises(WeftError, match="asked for task 'eval', which it does not do"):
        TensorActor().run(encoded(Frame("task", 1, "eval")))
    with pytest.raises(FormatError):
        TensorActor().run(b"\x00\x00\x00\x02[]")
