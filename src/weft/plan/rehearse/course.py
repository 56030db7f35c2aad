"""What a rank does one after the other in an epoch: work, calls that it begins, calls that it waits for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.comm.ledger import OTHER, Label, Ledger
from weft.plan.rehearse.work import CountedWork

CallName = tuple[Any, ...]
"""Names a call, the same for all ranks that make it."""
BETWEEN = "other"
"""The phase of what is done between phases."""
WAIT = "wait"
"""The phase in which a batch is made, or waited for where threads make it."""


@dataclass(frozen=True)
class BegunCall:
    """A call as one of its ranks begins it."""

    name: CallName
    ranks: tuple[int, ...]
    """All that make it."""
    sent: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Bytes and messages that this one sends, by rank."""


@dataclass
class Stretch:
    """Work, and the call that is begun or waited for after it; neither where a phase ends."""

    work: CountedWork
    begins: BegunCall | None = None
    awaits: CallName | None = None
    kind: str = ""
    """What the call that is waited for is for."""
    phase: str = BETWEEN
    at: float = 0.0
    """When it ended, by the clock of the rehearsal's events."""


class Course:
    """The stretches of one rank; work is taken from who counts it."""

    def __init__(self) -> None:
        self.take: Callable[[], CountedWork] = CountedWork
        self.now: Callable[[], float] = float
        """The clock that the starts of phases are told by."""
        self._open: list[Stretch] = []
        self._closed: list[Stretch] = []

    def begin(self, call: BegunCall) -> None:
        """Note that a call is begun."""
        self._open.append(Stretch(self.take(), begins=call, at=self.now()))
        self._open[-1].work.sent += 1

    def wait(self, name: CallName) -> None:
        """Note that a call is waited for."""
        self._open.append(Stretch(self.take(), awaits=name, at=self.now()))

    def waited(self, kind: str) -> None:
        """Note what the call was for that was waited for last."""
        if self._open and self._open[-1].awaits is not None:
            self._open[-1].kind = kind

    def end_phase(self, name: str, start: float) -> None:
        """Note that a phase ends which began at a time: what was done before is of none."""
        last = Stretch(self.take(), at=self.now())
        last.work.steps += 1
        for each in (*self._open, last):
            each.phase = name if each.at >= start else BETWEEN
            self._closed.append(each)
        self._open = []

    def take_epoch(self) -> list[Stretch]:
        """Return what was done since the last call, in order."""
        taken = [*self._closed, *self._open, Stretch(self.take())]
        self._open, self._closed = [], []
        return taken


class CourseLedger(Ledger):
    """A ledger that tells a course what was waited for."""

    def __init__(self, course: Course) -> None:
        super().__init__()
        self.course = course

    def waited(self, exposed: float, hidden: float, label: Label = OTHER) -> None:
        """Add the seconds of one transfer, whose wait has just ended."""
        super().waited(exposed, hidden, label)
        self.course.waited(label.kind)


def work_by_phase(stretches: list[Stretch]) -> dict[str, CountedWork]:
    """Return the work of each phase."""
    found: dict[str, CountedWork] = {}
    for each in stretches:
        found.setdefault(each.phase, CountedWork()).add(each.work)
    return found


def note_draws(stretches: Sequence[Stretch]) -> None:
    """Count what samplers do in the native core, where no operator is seen: the edges of each batch."""
    made: Stretch | None = None
    for each in stretches:
        if each.phase == WAIT:
            made = each
        elif each.phase == "forward":
            (made or each).work.drawn += each.work.edges
