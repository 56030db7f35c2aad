"""What of a message crosses the network where a graph is cut, for `weft explain`."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from torch import Tensor

from weft.compiler.ranks.crossing import Sent
from weft.graph.message.crossing import crossing_of
from weft.graph.message.reduction import Propagation
from weft.sizes import shown


@dataclass(frozen=True)
class Crossed:
    """One tensor whose rows other workers read, under a strategy that brings a halo."""

    name: str
    """The operator that made it, or the input of the message that it is."""
    shape: tuple[int, ...]
    """Of a row."""
    row_bytes: int
    """Of a row, one way."""
    gradient: bool
    """Whether its gradient travels back."""
    once: bool
    """Whether it is an input of the model, which is fetched once for all steps."""
    rows: int
    """Those that all workers together take from others."""

    @property
    def step_bytes(self) -> int:
        """What a step of training sends."""
        return 0 if self.once else self.rows * self.row_bytes * (2 if self.gradient else 1)

    def __str__(self) -> str:
        """Return the same in words."""
        wide = "x".join(map(str, self.shape)) or "1"
        message = f"{self.name}, {wide} wide, {self.row_bytes:,} bytes a row, {self.rows:,} rows: "
        if self.once:
            return message + "fetched once, nothing in a step"
        ways = "there and as gradients back" if self.gradient else "one way"
        return message + f"{shown(self.step_bytes)} a step, {ways}"


def crossed_rows(how: Propagation, rows: int, is_input: Callable[[Tensor], bool]) -> tuple[Crossed, ...]:
    """Return what edges read of `rows` rows elsewhere: the narrowest values, or what the message is given."""
    crossing = crossing_of(how, is_input)
    if crossing is not None:
        return tuple(_of(each, rows) for each in crossing[0].sent)
    return tuple(
        Crossed(
            f"source_{index}",
            tuple(each.shape[1:]),
            prod(each.shape[1:]) * each.element_size(),
            each.requires_grad,
            is_input(each),
            rows,
        )
        for index, each in enumerate(how.src)
    )


def _of(sent: Sent, rows: int) -> Crossed:
    size = prod(sent.shape) * sent.dtype.itemsize
    return Crossed(sent.name, sent.shape, size, sent.backward, sent.free, rows)
