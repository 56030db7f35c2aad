"""Weights of relations where several visits are trained at the same time: each from the same start.

What a visit changed, of weights and of Adagrad's sums, is added in the order of visits, whoever trained
them: w = w₀ + Σ (w_v - w₀). So any number of workers gives the same bits, one process too. (A parameter
server adds the same changes, as they come.)
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.comm.ledger import Label

_LABEL = Label("relations")


class RoundMerge:
    """The weights of one round: `begin` each visit and `end` it; all workers `finish` the round."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer, group: Group
    ) -> None:
        self._held = [
            *(each.data for each in parameters),
            *(optimizer.state[each]["sum"] for each in parameters),
        ]
        self._group = group
        self._start = [each.clone() for each in self._held]
        self._changes: list[Tensor] = []

    def begin(self) -> None:
        """Go back to the start of the round."""
        for held, start in zip(self._held, self._start):
            held.copy_(start)

    def end(self) -> None:
        """Note what a visit changed."""
        self._changes.append(flat([held - start for held, start in zip(self._held, self._start)]))

    def finish(self, visits: int) -> None:
        """Add what all visits of the round changed; worker r of n trained visits r, r + n, …"""
        # Of the weights' own type where this worker had no visit, too: others send theirs.
        own = torch.stack(self._changes) if self._changes else flat(self._start)[None][:0]
        for change in in_order(own, visits, self._group):
            at = 0
            for start in self._start:
                start += change[at : at + start.numel()].view_as(start).to(start)
                at += start.numel()
        self.begin()


def flat(parts: Sequence[Tensor]) -> Tensor:
    """Return all numbers of some tensors in a row."""
    return torch.cat([each.flatten() for each in parts]) if parts else torch.zeros(0)


def in_order(own: Tensor, visits: int, group: Group) -> Tensor:
    """Return a row for each visit, from workers' own ones: worker r of n has visits r, r + n, …"""
    counts = [len(range(rank, visits, group.size)) for rank in range(group.size)]
    rows = group.all_gather(own.cpu(), counts, label=_LABEL).wait()
    order = [visit for rank in range(group.size) for visit in range(rank, visits, group.size)]
    found = torch.empty_like(rows)
    found[torch.tensor(order, dtype=torch.int64)] = rows
    return found
