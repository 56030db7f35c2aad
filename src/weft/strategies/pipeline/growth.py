"""Batches that grow while a run trains: after so many epochs, or when the loss has stopped to fall."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from weft.config import Range, bind
from weft.errors import RecipeError

_MOST = 1 << 40
"""More than any graph has nodes: a batch of all of them."""


@dataclass(frozen=True)
class Growth:
    """When a batch size grows, by `factor`, and up to what."""

    every: Annotated[int, Range(least=1)] | None = None
    """After so many epochs each."""
    patience: Annotated[int, Range(least=1)] | None = None
    """After so many epochs in a row whose loss was not the smallest."""
    factor: Annotated[float, Range(least=1)] = 2.0
    most: Annotated[int, Range(least=1)] | None = None

    @staticmethod
    def of(given: Mapping[str, Any] | None) -> "Growth | None":
        """Return what the table of a recipe says, checked."""
        if given is None:
            return None
        made: Growth = Growth(**bind(Growth, given, "strategy.grow"))
        if (made.every is None) == (made.patience is None):
            raise RecipeError(
                "strategy.grow: after how many epochs? give every, as {every = 10, factor = 2}, or patience, "
                "of epochs without a smaller loss"
            )
        return made

    def size(self, first: int, times: int) -> int:
        """Return what a batch size has grown to after so many times; never less than the first."""
        try:
            grown = first * self.factor**times
        except OverflowError:  # after a thousand doublings
            grown = _MOST
        return max(first, int(min(grown, _MOST if self.most is None else self.most)))


@dataclass
class Waiting:
    """How long the loss has not fallen: a function of the losses of epochs, the same on all workers."""

    least: float | None = None
    """The smallest loss of an epoch so far."""
    waited: int = 0
    """Epochs since then, or since batches grew."""
    grown: int = 0
    """How often batches grew for it."""

    def note(self, loss: float, patience: int) -> None:
        """Take note of an epoch."""
        if self.least is None or loss < self.least:
            self.least, self.waited = loss, 0
            return
        self.waited += 1
        if self.waited >= patience:
            self.grown, self.waited = self.grown + 1, 0


class BatchSize:
    """The batch size of a run, epoch by epoch."""

    def __init__(self, first: int, growth: Growth | None) -> None:
        self.first, self.growth, self.waiting = first, growth, Waiting()

    def of(self, epoch: int) -> int:
        """Return that of an epoch: of the next one, where it goes by losses."""
        if self.growth is None:
            return self.first
        every = self.growth.every
        return self.growth.size(self.first, self.waiting.grown if every is None else epoch // every)

    def epoch_ended(self, loss: float) -> None:
        """Take note of the loss of an epoch."""
        if self.growth is not None and self.growth.patience is not None:
            self.waiting.note(loss, self.growth.patience)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold."""
        by_loss = self.growth is not None and self.growth.patience is not None
        return asdict(self.waiting) if by_loss else {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint's state."""
        if state:
            least = state["least"]
            self.waiting = Waiting(
                None if least is None else float(least), int(state["waited"]), int(state["grown"])
            )
