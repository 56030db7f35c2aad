"""What stages hand each other: rows of nodes onwards, their gradients back, and nothing else.

Both ends know who sends what next and how large it is, so a receive is begun early and messages carry no
header. Every wait is bounded by the group's.
"""

from collections import deque
from collections.abc import Hashable

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.pending import Pending

_MOST = 16
"""Messages under way to others; then the oldest is waited for, which needs nothing that is sent later."""
ROWS, GRADIENTS = Label("stage"), Label("stage", direction="backward")


class Mail:
    """Sends and receives of one worker."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._coming: dict[Hashable, Pending | Tensor] = {}
        self._going: deque[Pending] = deque()

    def expect(
        self, key: Hashable, shape: tuple[int, int], dtype: torch.dtype, member: int, label: Label
    ) -> None:
        """Begin to receive what a member sends next; expected in the order in which it sends."""
        if key in self._coming:
            return
        into = torch.empty(shape, dtype=dtype)
        # Nothing is sent of no rows: both ends know that there are none.
        self._coming[key] = self.group.start_receive(into, member, label=label) if into.numel() else into

    def take(self, key: Hashable) -> Tensor:
        """Return what was expected, when it is there."""
        held = self._coming.pop(key)
        return held if isinstance(held, Tensor) else held.wait()

    def send(self, tensor: Tensor, member: int, label: Label) -> None:
        """Begin to send; the tensor is not changed until it has arrived."""
        while len(self._going) >= _MOST:
            self._going.popleft().wait()
        if tensor.numel():
            self._going.append(self.group.start_send(tensor, member, label=label))

    def settle(self) -> None:
        """Wait until all has arrived."""
        while self._going:
            self._going.popleft().wait()
