"""Rows that travel while whole epochs pass: Md et al., DistGNN (its cd-r), 2021.

Rows are dealt into r bins by a draw of their id, which both ends compute. Epoch e sends bin e mod r, in the
background, and epoch e + r is the first to read it: r epochs hide the traffic, and an epoch sends 1/r of the
rows, forward and backward alike. A row is read until the next of its bin is due, so it is r … 2r − 1 epochs
old; the published code leaves it out between its turns. The first epoch exchanges everything and waits.

A merge over replicas makes two such ways, to the root of a node and back: what leaves read of other leaves is
2r … 3r − 1 epochs old. `relay` tells an exchange whose rows it passes on, so that the ledger has the age of
what is in them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.config import Range
from weft.draw import Stream, draw, fold
from weft.exchanges.accuracy import AccuracyCost, on_communities, on_pubmed
from weft.exchanges.base import Arrival, Exchange, Later, exchanges

EPOCHS = 5
"""That rows travel where nothing is said."""


class _Given:
    """Rows that have arrived."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def wait(self) -> Tensor:
        """Return them."""
        return self.rows


class _When(NamedTuple):
    """Of which epochs rows are."""

    sent: int
    oldest: int
    """That of the oldest number in them: they may hold what was brought before."""


class _History:
    """One tensor's rows as they are read now, and those of each bin that are under way."""

    def __init__(self, like: Tensor, first: Arrival, when: list[_When]) -> None:
        self.kind = (like.shape[1:], like.dtype)
        self.rows: Tensor | None = None
        self.when = when  # of the rows of each bin
        self.sent = max(when).sent  # the last epoch that sent some
        self._due: list[tuple[Arrival, Tensor | None]] = [(first, None)]  # and which rows they are
        self._under_way: dict[int, tuple[Arrival, Tensor, _When]] = {}

    def read(self) -> Tensor:
        """Return the rows of this step, the same when called again."""
        for arrival, places in self._due:
            came = arrival.wait()
            # Not in place: what an earlier step was given stays what it was.
            self.rows = came if places is None or self.rows is None else self.rows.index_copy(0, places, came)
        self._due = []
        assert self.rows is not None, "the first exchange waits for its rows"
        return self.rows

    def arrive(self, now: int, delay: int) -> None:
        """Have rows that left `delay` epochs ago read from now on."""
        for turn in [turn for turn, (*_, when) in self._under_way.items() if when.sent + delay <= now]:
            arrival, places, self.when[turn] = self._under_way.pop(turn)
            self._due.append((arrival, places))

    def depart(self, turn: int, rows: Arrival, places: Tensor, when: _When) -> None:
        """Note the rows of a bin that leave now."""
        self._under_way[turn] = rows, places, when
        self.sent = when.sent

    def drain(self) -> None:
        """Wait for all that is under way."""
        self.read()
        for rows, _, _ in self._under_way.values():
            rows.wait()

    def state(self) -> dict[str, Tensor]:
        """Return the rows that are read, those to be read, and the epochs of both, one column per bin."""
        self.drain()
        coming, left = self.read().clone(), [_NEVER] * len(self.when)
        for turn, (rows, places, when) in self._under_way.items():
            coming[places], left[turn] = rows.wait(), when
        return {"rows": self.read(), "coming": coming, "epochs": torch.tensor([self.when, left])}

    @staticmethod
    def restored(state: Mapping[str, Tensor], bins: Tensor) -> "_History":
        """Return the history of a state; `bins` has the bin of each row."""
        arrived, left = ([_When(*pair) for pair in each] for each in state["epochs"].tolist())
        history = _History(state["rows"], _Given(state["rows"]), arrived)
        for turn in sorted((turn for turn, when in enumerate(left) if when != _NEVER), key=left.__getitem__):
            places = (bins == turn).nonzero().flatten()
            history.depart(turn, _Given(state["coming"][places]), places, left[turn])
        return history


_NEVER = _When(-1, -1)


@exchanges.add("delayed")
class Delayed(Exchange):
    """Send each row every `r` epochs, to be read r epochs later; `r` 0 sends all at once and is exact."""

    carries_over = True
    waits = False
    score_costs: ClassVar[tuple[AccuracyCost, ...]] = (
        on_pubmed(-0.68, 0.23, r=5),
        on_pubmed(-0.09, 0.20, r=2),
        on_communities(-0.10, 0.06, r=5),
        on_communities(-0.09, 0.05, r=2),
    )
    exact_at: ClassVar[Mapping[str, Any]] = {"r": 0}

    def __init__(
        self, plan: HaloPlan, group: Group, clock: Tensor, *, r: Annotated[int, Range(least=0)] = EPOCHS
    ) -> None:
        super().__init__(plan, group, clock)
        self.r = r
        self._histories: dict[tuple[str, int], _History] = {}
        ids_of = {"features": plan.halo_ids, "gradients": plan.send_ids}
        self._bins = {what: _bins(ids, r) for what, ids in ids_of.items()} if r else {}
        self._plans: dict[int, HaloPlan] = {}
        self._relayed: dict[str, tuple[Delayed, Tensor]] = {}

    @classmethod
    def period(cls, options: Mapping[str, Any]) -> int:
        """Return the epochs in which every bin is sent once."""
        return max(1, int(options.get("r", EPOCHS)))

    def relay(self, what: str, source: "Delayed", ids: Tensor) -> None:
        """Say that the features or gradients of these nodes hold what `source` brought, call by call."""
        self._relayed[what] = source, torch.bincount(_bins(ids, self.r), minlength=self.r)

    def oldest(self, what: str, slot: int, turn: int) -> int:
        """Return the epoch of the oldest number in the rows of a bin that are read now."""
        return self._histories[what, slot].when[turn].oldest

    def pull(self, h: Tensor, slot: int) -> Arrival:
        """Return the rows of the history, and send those whose turn it is."""
        if not self.r:
            return super().pull(h, slot)
        history = self._histories.get(("features", slot))
        if history is None or history.kind != (h.shape[1:], h.dtype):
            history = self._begin("features", slot, h, self.bring(h, slot))
        elif self._is_due(history):
            self.plan = self._plan_of(self._turn)
            self._depart("features", slot, history, self.bring(h, slot, background=True))
        self._note("features", history)
        return Later(history.read)

    def push(self, gradient: Tensor, slot: int) -> Arrival:
        """Return the gradients of the history, and send those whose turn it is."""
        if not self.r:
            return super().push(gradient, slot)
        history = self._histories.get(("gradients", slot))
        if history is None or history.kind != (gradient.shape[1:], gradient.dtype):
            history = self._begin("gradients", slot, gradient, self.send_home(gradient, slot))
        elif self._is_due(history):
            self.plan = self._plan_of(self._turn)
            chosen = gradient[self._places("features")]
            self._depart("gradients", slot, history, self.send_home(chosen, slot, background=True))
        self._note("gradients", history)
        return Later(lambda: self.whole_plan.sum_at_owner(history.read()))

    def drain(self) -> None:
        """Wait for all that is under way."""
        for history in self._histories.values():
            history.drain()

    def state(self) -> dict[str, Tensor]:
        """Return the rows that coming steps read, and of which epochs they are."""
        return {
            f"{what}.{slot}.{name}": value
            for (what, slot), history in self._histories.items()
            for name, value in history.state().items()
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue with those rows: no exchange waits."""
        self._histories.clear()
        for what, slot in sorted({tuple(name.split(".")[:2]) for name in state}):
            saved = {name: state[f"{what}.{slot}.{name}"] for name in ("rows", "coming", "epochs")}
            self._histories[what, int(slot)] = _History.restored(saved, self._bins[what])

    @property
    def _now(self) -> int:
        return int(self.clock[1])

    @property
    def _turn(self) -> int:
        """The bin of this epoch."""
        return self._now % self.r

    def _is_due(self, history: _History) -> bool:
        """Let arrive what this epoch reads, and return whether it has sent nothing yet."""
        history.arrive(self._now, self.r)
        return history.sent < self._now

    def _begin(self, what: str, slot: int, like: Tensor, first: Arrival) -> _History:
        history = self._histories[what, slot] = _History(like, first, [_When(self._now, self._now)] * self.r)
        return history

    def _depart(self, what: str, slot: int, history: _History, rows: Arrival) -> None:
        self.plan = self.whole_plan
        oldest = self._now
        if what in self._relayed:
            oldest = self._relayed[what][0].oldest(what, slot, self._turn)
        history.depart(self._turn, rows, self._places(what), _When(self._now, oldest))

    def _places(self, what: str) -> Tensor:
        """Return the halo rows, or for gradients the places in `send_rows`, whose turn it is."""
        return (self._bins[what] == self._turn).nonzero().flatten()

    def _plan_of(self, turn: int) -> HaloPlan:
        if turn not in self._plans:
            masks = (self._bins[what] == turn for what in ("features", "gradients"))
            self._plans[turn] = self.whole_plan.select(*masks)
        return self._plans[turn]

    def _note(self, what: str, history: _History) -> None:
        """Tell the ledger how old the rows are that are read."""
        counts = torch.bincount(self._bins[what], minlength=self.r)
        passed_on = self._relayed[what][1] if what in self._relayed else torch.zeros_like(counts)
        for when, rows, old in zip(history.when, counts.tolist(), passed_on.tolist()):
            for epoch, count in ((when.sent, rows - old), (when.oldest, old)):
                if count:
                    self.group.ledger.used(self._now - epoch, count)


def _bins(ids: Tensor, r: int) -> Tensor:
    """Return the bin of each row: a draw of its id alone, the same in every epoch and at both ends."""
    bits = draw(fold(0, Stream.BOUNDARY), ids.numpy()).astype(np.int64)
    return torch.from_numpy(bits % r)
