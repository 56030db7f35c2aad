"""A share of the rows a step, read until their turn comes again: Md et al., DistGNN (its cd-r), 2021.

Rows are dealt into r bins by a draw of their id, which both ends compute. Epoch e sends bin e mod r in the
background; it is read from the next epoch on, so that what is read is 1 … r epochs old and an epoch sends 1/r
of the rows, forward and backward alike. The first epoch exchanges everything and waits.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.config import Range
from weft.draw import Stream, draw, fold
from weft.exchanges.base import Arrival, Exchange, Later, exchanges


class _History:
    """One tensor's rows as they were when they came last, and those under way for the next step."""

    def __init__(self, like: Tensor, delay: int) -> None:
        self.kind = (like.shape[1:], like.dtype)
        self.rows: Tensor | None = None
        self.ages = [0] * delay  # steps since each bin was sent
        self.arriving: tuple[Arrival, Tensor] | None = None  # and which rows they are
        self.sent: tuple[Arrival, Tensor] | None = None
        self.turned = False

    def read(self) -> Tensor:
        """Return the rows of this step, the same when called again."""
        if self.arriving is not None:
            arrival, places = self.arriving
            if self.rows is None:
                self.rows = arrival.wait()
            else:
                self.rows = self.rows.index_copy(0, places, arrival.wait())
            self.arriving = None
        assert self.rows is not None, "the first exchange waits for its rows"
        return self.rows

    def turn(self, sent: int) -> None:
        """End a step in which a bin was sent: it is read in the next one."""
        self.read()
        if self.sent is not None or not self.turned:
            self.ages = [age + 1 for age in self.ages]
        if self.sent is not None:
            self.arriving, self.sent = self.sent, None
            self.ages[sent] = 1
        self.turned = True


@exchanges.add("delayed")
class Delayed(Exchange):
    """Send each row every `r` epochs and read it until then; `r` 0 sends all rows at once and is exact."""

    exact_at: ClassVar[Mapping[str, Any]] = {"r": 0}

    def __init__(
        self, plan: HaloPlan, group: Group, clock: Tensor, *, r: Annotated[int, Range(least=0)] = 5
    ) -> None:
        super().__init__(plan, group, clock)
        self.r = r
        self._histories: dict[tuple[str, int], _History] = {}
        self._bins = [_bins(ids, r) for ids in (plan.halo_ids, plan.send_ids)] if r else []
        self._plans: dict[int, HaloPlan] = {}
        self._last = 0  # the bin of this step

    def pull(self, h: Tensor, slot: int) -> Arrival:
        """Return the rows of the history, and send those whose turn it is."""
        if not self.r:
            return super().pull(h, slot)
        history = self._history("features", slot, h)
        if history.rows is None and history.arriving is None:
            history.arriving = self.bring(h, slot), torch.zeros(0)
        elif history.turned and history.sent is None:
            self.plan = self._plan_of(self._last)
            history.sent = self.bring(h, slot, background=True), self._places(0)
            self.plan = self.whole_plan
        self._note(history, 0)
        return Later(history.read)

    def push(self, gradient: Tensor, slot: int) -> Arrival:
        """Return the gradients of the history, and send those whose turn it is."""
        if not self.r:
            return super().push(gradient, slot)
        history = self._history("gradients", slot, gradient)
        if history.rows is None and history.arriving is None:
            history.arriving = self.send_home(gradient, slot), torch.zeros(0)
        elif history.turned and history.sent is None:
            self.plan = self._plan_of(self._last)
            chosen = gradient[self._places(0)]
            history.sent = self.send_home(chosen, slot, background=True), self._places(1)
            self.plan = self.whole_plan
        self._note(history, 1)
        return Later(lambda: self.whole_plan.sum_at_owner(history.read()))

    def end_step(self) -> None:
        """Make what was sent in this step what the next one reads."""
        for history in self._histories.values():
            history.turn(self._last)

    def begin_step(self) -> None:
        """Note whose turn it is."""
        super().begin_step()
        self._last = int(self.clock[1]) % self.r if self.r else 0

    def drain(self) -> None:
        """Wait for all that is under way."""
        for history in self._histories.values():
            history.read()

    def state(self) -> dict[str, Tensor]:
        """Return the rows that the next step reads, and how old they are."""
        self.drain()
        held: dict[str, Tensor] = {}
        for (what, slot), history in self._histories.items():
            held[f"{what}.{slot}.rows"] = history.read()
            held[f"{what}.{slot}.ages"] = torch.tensor(history.ages)
        return held

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue with those rows: no exchange waits."""
        self._histories.clear()
        for name, rows in state.items():
            what, slot, kind = name.split(".")
            if kind == "rows":
                history = self._histories[what, int(slot)] = _History(rows, self.r)
                history.rows, history.turned = rows, True
                history.ages = state[f"{what}.{slot}.ages"].tolist()

    def _history(self, what: str, slot: int, like: Tensor) -> _History:
        history = self._histories.get((what, slot))
        if history is None or history.kind != (like.shape[1:], like.dtype):
            history = self._histories[what, slot] = _History(like, self.r)
        return history

    def _places(self, end: int) -> Tensor:
        """Return the halo rows (0), or the places in `send_rows` (1), whose turn it is."""
        return (self._bins[end] == self._last).nonzero().flatten()

    def _plan_of(self, turn: int) -> HaloPlan:
        if turn not in self._plans:
            self._plans[turn] = self.whole_plan.select(self._bins[0] == turn, self._bins[1] == turn)
        return self._plans[turn]

    def _note(self, history: _History, end: int) -> None:
        for number, age in enumerate(history.ages):
            self.group.ledger.used(age, int((self._bins[end] == number).sum()))


def _bins(ids: Tensor, r: int) -> Tensor:
    """Return the bin of each row: a draw of its id alone, the same in every epoch and at both ends."""
    bits = draw(fold(0, Stream.BOUNDARY), ids.numpy()).astype(np.int64)
    return torch.from_numpy(bits % r)
