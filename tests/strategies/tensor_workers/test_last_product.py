"""The product that a pass ends with goes with its loss: same bits, fewer round trips and bytes."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from asynchronous_jobs import far, held, trained, whole
from torch import Tensor, nn

from weft.errors import TrainingError
from weft.strategies.asynchronous.asynchronous import Asynchronous
from weft.strategies.tensor_workers import last_product, tensor_workers
from weft.strategies.tensor_workers.frames import Frame, decoded, encoded
from weft.strategies.tensor_workers.last_product import LastProduct
from weft.strategies.tensor_workers.offer import Offer
from weft.strategies.tensor_workers.operators import OPERATORS
from weft.strategies.tensor_workers.process_worker import TaskDone, weights_asked
from weft.strategies.tensor_workers.worker import Products
from weft.tasks.loss import CROSS_ENTROPY, Loss

EPOCHS, INTERVALS = 6, 3


class HereWorker:
    """A worker in this process: what it is sent goes through frames all the same."""

    pid = None

    def __init__(self) -> None:
        self._products = Products()

    def start(self) -> None:
        pass

    def run(self, task: Frame, weights: Mapping[str, Tensor]) -> TaskDone:
        data = encoded(task)
        sent, pulls, task = len(data), 0, decoded(data)
        while (answer := self._products.asked(task)).kind == "pull":
            self._products.given(answer, decoded(encoded(weights_asked(answer, weights))))
            pulls += len(answer.weights)
        return TaskDone(answer, sent, pulls)

    def end(self, *, kill: bool) -> None:
        pass

    def reap(self, seconds: float) -> None:
        pass

    def was_killed(self) -> bool:
        return False


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_workers, "ProcessWorker", HereWorker)


def run(model: Any = None, layer: str = "sgc", **options: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return what was trained with one tensor worker, and its counts."""
    graph, built = held("hub", layer, torch.float32)
    strategy = Asynchronous(whole(graph), seed=3, intervals=INTERVALS, tensor_workers=1, **options)
    told: dict[str, Any] = {}
    evaluate = strategy.evaluate

    def last(*given: Any) -> Any:
        told.update(strategy.batching.epoch_fields()["asynchronous"]["workers"][0]["tasks"])
        return evaluate(*given)

    strategy.evaluate = last  # type: ignore[method-assign]
    return trained(strategy, built if model is None else model(built), EPOCHS), told


def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no product go with its loss."""
    monkeypatch.setattr(last_product.LastProduct, "settle", lambda *_: None)


def test_loss_and_gradients_come_with_the_last_product_and_no_bit_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, joined = run()
    with monkeypatch.context() as patch:
        apart(patch)
        expected, apart_told = run()
    assert far(found, expected) == 0.0
    # The first pass of each interval shows which product is the last one.
    assert joined["joined"] == INTERVALS * (EPOCHS - 1)
    assert apart_told["joined"] == 0
    assert apart_told["tasks"] == 2 * INTERVALS * EPOCHS
    assert joined["tasks"] == apart_told["tasks"] - joined["joined"]
    assert joined["bytes"] < 0.8 * apart_told["bytes"]
    assert joined["pulls"] == apart_told["pulls"]


def test_what_ends_with_a_gather_sends_its_products_apart() -> None:
    assert run(layer="gcn")[1]["joined"] == 0


class Scaled(nn.Module):
    """A model that does something with its last product from the third pass of an interval on."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.passes = model, 0

    def forward(self, blocks: Any, x: Any) -> Tensor:
        self.passes += self.training
        h: Tensor = self.model(blocks, x)
        return h * 2.0 if self.passes > 2 and self.training else h


def test_a_product_that_something_else_reads_is_made_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found, told = run(Scaled)
    with monkeypatch.context() as patch:
        apart(patch)
        expected, _ = run(Scaled)
    assert far(found, expected) == 0.0
    assert told["joined"] == INTERVALS  # the second pass alone


class Pool:
    """Does tasks at once."""

    def run(self, name: str, arrays: list[Tensor], weights: dict[str, Tensor]) -> list[Tensor]:
        return OPERATORS[name](arrays, [*weights.values()])


def test_a_product_that_is_put_off_has_a_shape_and_is_not_read_without_its_gradient() -> None:
    weight, rows = torch.randn(3, 4, requires_grad=True), torch.randn(6, 4)
    last = LastProduct(CROSS_ENTROPY, torch.zeros(2, dtype=torch.int64), 2)
    last.number = 0
    offer: Any = Offer(Pool(), {"w": weight}, torch.no_grad, last)  # type: ignore[arg-type]
    with offer:
        product = F.linear(rows, weight)
        assert product.shape == (6, 3)
        assert product[torch.tensor([1, 4])].shape == (2, 3)
        with torch.no_grad(), pytest.raises(TrainingError, match="reads without a gradient in another"):
            product.sum()
        assert torch.equal(product[1:3], F.linear(rows, weight)[1:3])
    assert last.number is None


def test_a_loss_of_the_users_stays_here() -> None:
    own = Loss("own", CROSS_ENTROPY.each, CROSS_ENTROPY.summed, own=True)
    last = LastProduct(own, torch.zeros(2, dtype=torch.int64), 2)
    made = torch.randn(2, 3)
    last.note(0, made)
    last.settle(made, made)
    assert last.number is None


def test_a_loss_that_counts_twice_has_twice_the_gradients_of_matrix_bias_and_rows() -> None:
    y, places = torch.tensor([2, 0]), torch.tensor([1, 4])
    last = LastProduct(CROSS_ENTROPY, y, 2)
    last.number = 0
    given = [torch.randn(*shape, requires_grad=True) for shape in ((6, 4), (3, 4), (3,))]
    rows, weight, bias = given
    with Offer(Pool(), {"w": weight, "b": bias}, nullcontext, last):  # type: ignore[arg-type]
        product: Any = F.linear(rows, weight, bias)
        found = torch.autograd.grad(2.0 * product[places].joined(), given)
    expected = torch.autograd.grad(2.0 * F.cross_entropy(F.linear(rows, weight, bias)[places], y), given)
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other)
