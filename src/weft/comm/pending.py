"""A transfer between ranks that is under way: waited for once, counted as exposed or hidden time."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from weft.comm.ledger import Label
from weft.comm.wire import Transit

if TYPE_CHECKING:
    from weft.comm.group import Group


class Pending:
    """A transfer under way. `wait()` gives its result, at once and again when called again."""

    def __init__(
        self,
        group: "Group",
        result: Tensor,
        label: Label,
        *,
        work: Transit | None = None,
        holds: Tensor | None = None,
        between_two: bool = False,
    ) -> None:
        """`between_two`: a message to or from one member, whose end gloo tells to who waits for it alone."""
        self._group, self._result, self._label = group, result, label
        self._work = work
        self._finishes: list[Callable[[Tensor], Tensor]] = []
        self._holds = holds  # the buffer that is sent must live until it is
        self._started = time.perf_counter()
        self._ended: list[float] = []
        if between_two:
            self._ended.append(self._started)  # so that no time counts as hidden
        elif work is not None:
            work.get_future().add_done_callback(lambda _: self._ended.append(time.perf_counter()))

    def done(self) -> bool:
        """Return whether `wait` would not block."""
        return self._work is None or self._work.is_completed()

    def wait(self) -> Tensor:
        """Return the result; raises WorkerLost when a rank is gone or late."""
        if self._work is not None:
            began = time.perf_counter()
            self._group.complete(self._work)
            exposed = time.perf_counter() - began
            ended = self._ended[0] if self._ended else time.perf_counter()
            self._group.ledger.waited(exposed, max(0.0, ended - self._started - exposed), self._label)
            self._work, self._holds = None, None
        while self._finishes:
            self._result = self._finishes.pop(0)(self._result)
        return self._result

    def then(self, finish: Callable[[Tensor], Tensor]) -> "Pending":
        """Have `wait` give what a function makes of the result, and return this transfer."""
        self._finishes.append(finish)
        return self


def sum_blocks(received: Tensor, size: int, rows: int) -> Tensor:
    """Return the sum of `size` blocks of so many rows, added up in their order."""
    blocks = torch.split(received, rows) if rows else [received] * size
    total = blocks[0].clone()
    for block in blocks[1:]:
        total += block
    return total
