"""Rows sent now and then, their history read in between: Peng et al., SANCUS: Staleness-Aware GNN Training,
2022.

Before an exchange every source decides whether to send; all members know all decisions, so that those who do
not send leave no one waiting. A source sends when any criterion that was given says so:

    interval  every k-th step, all sources together
    age       before rows would be used more than n steps old, the sources in turn: less traffic at once
    change    where the rows moved by more than eps of their length, ‖h − sent‖ / ‖sent‖, since they were sent

The first two need no message; `change` reduces one number per source. Gradients are taken as if
rows were fresh, and are sent every time unless `gradients` has them skipped by the same criteria.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.plan import HaloPlan, placed
from weft.config import Range
from weft.exchanges.accuracy import AccuracyCost, on_communities, on_pubmed
from weft.exchanges.base import Arrival, Exchange, Later, exchanges
from weft.exchanges.drift import Drift

INTERVAL = 4
_LESS, _MORE = 0.5, 1.5  # what a measured error may change the bound on the change by
_MARGIN = 0.9  # of a bound that broke the budget: no later one is above


@dataclass(frozen=True)
class _Way:
    """What is sent and got in one direction: rows by member, and where they go."""

    what: str
    rows: Tensor | None
    send: Sequence[int]
    receive: Sequence[int]
    label: Label


class _SentRows:
    """What one tensor's rows were when they were sent last; a step writes it at its end."""

    def __init__(self, like: Tensor, size: int) -> None:
        self.kind = (like.shape[1:], like.dtype)
        self.arrived: Tensor | None = None
        """Rows of all members in the order of arrival."""
        self.sent: Tensor | None = None
        """The own rows that others hold, kept where their change is watched."""
        self.ages = [0] * size
        """Steps since each member sent."""
        self.turns = [0] * size
        """Steps that count against the bound on the age; the first round is cut short, each member's so."""
        self.now: Arrival | None = None
        self.next_sent: Tensor | None = None

    def turn(self) -> None:
        """End a step."""
        if self.now is not None:
            self.arrived, self.now = self.now.wait(), None
            self.sent, self.next_sent = self.next_sent, None
            self.ages = [age + 1 for age in self.ages]
            self.turns = [age + 1 for age in self.turns]


@exchanges.add("skip")
class Skip(Exchange):
    """Send halo rows every `interval` steps, before they are more than `age` old, or on a `change` beyond it.

    The share `change` is of the length of what was sent last. Without any of the three: every fourth step.
    """

    carries_over = True
    score_costs: ClassVar[tuple[AccuracyCost, ...]] = (
        on_pubmed(0.42, 0.19, interval=4),
        on_pubmed(0.22, 0.13, age=3),
        on_communities(-0.06, 0.05, interval=4),
        on_communities(-0.04, 0.04, age=3),
    )
    exact_at: ClassVar[Mapping[str, Any]] = {"interval": 1}
    also_exact_at: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"age": 0},
        {"change": 0.0},
        {"interval": 1, "gradients": True},
    )
    adapts: ClassVar[str] = "change"

    def __init__(
        self,
        plan: HaloPlan,
        group: Group,
        clock: Tensor,
        *,
        interval: Annotated[int, Range(least=1)] | None = None,
        age: Annotated[int, Range(least=0)] | None = None,
        change: Annotated[float, Range(least=0)] | None = None,
        gradients: bool = False,
    ) -> None:
        super().__init__(plan, group, clock)
        self._given = not (interval is None and age is None and change is None)
        self.interval = interval if self._given else INTERVAL
        self.age, self.change, self.gradients = age, change, gradients
        self._error: float | None = None
        self._ceiling = 2.0 / _MARGIN
        self._histories: dict[tuple[str, int], _SentRows] = {}

    @classmethod
    def period(cls, options: Mapping[str, Any]) -> int:
        """Return the steps in which every source sends once; what `change` adds is known to a run alone."""
        interval, age, change = (options.get(name) for name in ("interval", "age", "change"))
        turns = [*([] if interval is None else [interval]), *([] if age is None else [age + 1])]
        return int(min(turns, default=INTERVAL if change is None else 1))

    def budget(self, error: float) -> None:
        """Watch the change of rows, and choose how much is too much each time the error was measured."""
        self._error = error
        self.interval = self.interval if self._given else None
        self.change = error if self.change is None else self.change

    def adapt(self, drift: Drift) -> None:
        """Allow more change where the error is below the budget, less where it is above.

        Where all was sent nothing was measured, and the bound stays; it never returns to one that broke the
        budget.
        """
        if self._error is None or self.change is None or not drift.errors:
            return
        worst = max(drift.errors)
        if worst == 0.0:
            return
        if worst > self._error:
            self._ceiling = min(self._ceiling, self.change)
        factor = min(max((self._error / worst) ** 0.5, _LESS), _MORE)
        self.change = min(max(self.change * factor, self._error / 50), _MARGIN * self._ceiling)

    def settings(self) -> dict[str, Any]:
        """Return the criteria in use."""
        return {"interval": self.interval, "age": self.age, "change": self.change}

    def pull(self, h: Tensor, slot: int) -> Arrival:
        """Return the halo rows, those of sources that do not send from history."""
        plan, label = self.plan, Label(self.kind, slot)
        way = _Way("features", plan.send_rows, plan.send_counts, plan.recv_counts, label)
        rows = self._exchange(way, h, slot)
        return Later(lambda: placed(rows.wait(), plan.order))

    def push(self, gradient: Tensor, slot: int) -> Arrival:
        """Return the gradients of own rows."""
        if not self.gradients:
            return super().push(gradient, slot)
        plan, label = self.plan, Label(self.kind, slot, "backward")
        way = _Way("gradients", plan.order, plan.recv_counts, plan.send_counts, label)
        rows = self._exchange(way, gradient, slot)
        return Later(lambda: plan.sum_at_owner(rows.wait()))

    def end_step(self) -> None:
        """Make what arrived in this step the history of the next."""
        for history in self._histories.values():
            history.turn()

    def state(self) -> dict[str, Tensor]:
        """Return all histories."""
        adapted = self._error is not None and self.change is not None
        chosen = {"change": self.change, "ceiling": self._ceiling} if adapted else {}
        state = {name: torch.tensor(value, dtype=torch.float64) for name, value in chosen.items()}
        for (what, slot), history in self._histories.items():
            name = f"{what}.{slot}"
            assert history.arrived is not None, "saved between steps"
            state[f"{name}.held"] = history.arrived
            state[f"{name}.ages"] = torch.tensor([history.ages, history.turns])
            if history.sent is not None:
                state[f"{name}.sent"] = history.sent
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue with those histories."""
        self._histories.clear()
        if "change" in state:
            self.change = float(state["change"])
            self._ceiling = float(state.get("ceiling", self._ceiling))
        for name in sorted(state):
            what, _, rest = name.partition(".")
            slot, _, kind = rest.partition(".")
            if kind == "held":
                history = _SentRows(state[name], self.group.size)
                history.arrived, history.sent = state[name], state.get(f"{what}.{slot}.sent")
                history.ages, history.turns = state[f"{what}.{slot}.ages"].tolist()
                self._histories[what, int(slot)] = history

    # Underneath

    def _exchange(self, way: _Way, x: Tensor, slot: int) -> Arrival:
        """Return the rows of all members in the order of arrival, fresh from those that send."""
        history = self._histories.get((way.what, slot))
        if history is None or history.kind != (x.shape[1:], x.dtype):
            history = self._histories[way.what, slot] = _SentRows(x, self.group.size)
        if history.now is not None:
            return history.now
        watched = self.change is not None
        rows = _rows(x, way) if watched else None
        due = self._decide(history, rows, way)
        self._count(history, due, way)
        sends = due[self.group.rank]
        if rows is None or not sends:
            sent = _rows(x, way) if sends else x[:0]
        else:
            sent = rows
        history.next_sent = (rows if sends else history.sent) if watched else None
        history.now = self._move(history.arrived, sent, due, way)
        return history.now

    def _decide(self, history: _SentRows, rows: Tensor | None, way: _Way) -> list[bool]:
        """Return who sends, the same on all members."""
        size = self.group.size
        if history.arrived is None:
            history.turns = [member % ((self.age or 0) + 1) for member in range(size)]
            return [True] * size
        due = [self._scheduled(age, turn) for age, turn in zip(history.ages, history.turns)]
        if rows is not None and not all(due):
            changed = torch.zeros(size, dtype=torch.int32)
            changed[self.group.rank] = self._changed(history, rows)
            label = way.label._replace(kind="decision")
            changed = self.group.all_reduce(changed, label=label).wait()
            due = [already or bool(wants) for already, wants in zip(due, changed.tolist())]
        for member, sends in enumerate(due):
            if sends:
                history.ages[member] = history.turns[member] = 0
        return due

    def _scheduled(self, age: int, turn: int) -> bool:
        by_interval = self.interval is not None and age >= self.interval
        return by_interval or (self.age is not None and turn > self.age)

    def _changed(self, history: _SentRows, rows: Tensor) -> bool:
        assert self.change is not None
        if history.sent is None:
            return True
        moved = torch.linalg.vector_norm(rows - history.sent)
        # Not "more than": what is not a number has changed.
        return not bool(moved <= self.change * torch.linalg.vector_norm(history.sent))

    def _move(self, history: Tensor | None, rows: Tensor, due: Sequence[bool], way: _Way) -> Arrival:
        if history is not None and not any(due):
            return Later(lambda: history)
        me, receive = self.group.rank, list(way.receive)
        arriving = [count if sends else 0 for count, sends in zip(receive, due)]
        send = list(way.send) if due[me] else [0] * self.group.size
        moved = self.group.all_to_all(rows, send, arriving, label=way.label)
        if history is None or all(due):
            return moved

        def merge(received: Tensor) -> Tensor:
            pairs = zip(torch.split(received, arriving), torch.split(history, receive), due)
            return torch.cat([fresh if sends else old for fresh, old, sends in pairs])

        return moved.then(merge)

    def _count(self, history: _SentRows, due: Sequence[bool], way: _Way) -> None:
        ledger = self.group.ledger
        if sum(way.send):
            ledger.decided(not due[self.group.rank])
        for age, rows in zip(history.ages, way.receive):
            if rows:
                ledger.used(age, rows)


def _rows(x: Tensor, way: _Way) -> Tensor:
    return x if way.rows is None else x[way.rows]
