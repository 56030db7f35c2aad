"""Members of a group in one process: all make their calls, then each waits for what the others sent."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.comm.ledger import OTHER, Label, Ledger


class Post:
    """What was sent between the members, by call: nothing arrives before the last of them has sent."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.calls: list[list[list[Tensor] | None]] = []
        self.members: list[Any] = [Member(self, rank) for rank in range(size)]


class Member:
    """One place of a group; has what exchanges call of `Group`."""

    def __init__(self, post: Post, rank: int) -> None:
        self.post, self.rank, self.size, self.ledger = post, rank, post.size, Ledger()
        self.sent: list[list[int]] = []  # counts of each call
        self.background: list[bool] = []  # whether each call was made behind the others
        self._calls = 0

    def all_to_all(
        self,
        rows: Tensor,
        send: Sequence[int],
        receive: Sequence[int],
        *,
        background: bool = False,
        label: Label = OTHER,
    ) -> "Mail":
        if self._calls == len(self.post.calls):
            self.post.calls.append([None] * self.size)
        call = self.post.calls[self._calls]
        assert sum(send) == len(rows)
        call[self.rank] = list(torch.split(rows, list(send)))
        self.sent.append(list(send))
        self.background.append(background)
        self._calls += 1
        return Mail(call, self.rank, list(receive))


class Mail:
    """Rows under way to one member."""

    def __init__(self, call: list[list[Tensor] | None], rank: int, counts: list[int]) -> None:
        self._call, self._rank, self._counts = call, rank, counts
        self._finish: Callable[[Tensor], Tensor] = lambda rows: rows
        self._rows: Tensor | None = None

    def then(self, finish: Callable[[Tensor], Tensor]) -> "Mail":
        before = self._finish
        self._finish = lambda rows: finish(before(rows))
        return self

    def wait(self) -> Tensor:
        if self._rows is None:
            blocks = [sent[self._rank] for sent in self._call if sent is not None]
            assert [len(block) for block in blocks] == self._counts, "both ends count alike"
            self._rows = self._finish(torch.cat(blocks))
        return self._rows


class Came:
    """Rows that have arrived."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def wait(self) -> Tensor:
        return self.rows
