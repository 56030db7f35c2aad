"""Messages between two parts, each in the order in which its ends send and expect them.

Between parts of one process a tensor is copied when both ends are there. Other processes are reached by
connections of two, opened in the background on the first message, so that who sends first waits for nobody.
"""

import math
import threading
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch import Tensor

from weft.comm.elastic.busy import Busy
from weft.comm.elastic.meeting import Meeting

if TYPE_CHECKING:
    from weft.comm.elastic.hub import Hub


class Letter(Meeting):
    """One end of a message: what is sent, or where it goes."""

    def __init__(
        self, tensor: Tensor, source: int, target: int, *, sends: bool, timeout: float, busy: Busy
    ) -> None:
        super().__init__(timeout, busy)
        self.tensor, self.source, self.target, self.sends = tensor, source, target, sends
        self.travels = False
        """Whether the other end is in another process, and nobody watches it yet."""
        self._departed = threading.Event()

    def depart(self, group: Any, place: int, tag: int) -> None:
        """Begin to travel to or from a place of a group."""
        call = group.send if self.sends else group.recv
        self.work = call([self.tensor], place, tag)
        self._departed.set()

    def end(self, error: str = "") -> None:
        """Note that it is done, or why it never will be."""
        super().end(error)
        self._departed.set()

    def wait(self, seconds: float | None = None) -> None:
        if self.travels and not self.is_completed():
            self.travels = False  # one is enough
            # Gloo tells the end of a message to nobody but a thread that waits for it, and does not let go
            # of that one where others are lost: so it is not the thread of the part.
            threading.Thread(target=self._watch, name="weft-letter", daemon=True).start()
        super().wait(seconds)

    def _watch(self) -> None:
        self._departed.wait(self.timeout)
        work = self.work
        if work is None:  # it has ended, or never got away, which who waits for it finds by the clock
            return
        try:
            work.wait(timedelta(seconds=self.timeout))
            self.end()
        except RuntimeError as error:
            self.end(str(error))


class Letters:
    """The messages of one wire, as a process has them."""

    def __init__(self, hub: "Hub", name: str) -> None:
        self.hub, self.name = hub, name
        self._early: dict[tuple[int, int], deque[Letter]] = {}
        self._lines: dict[int, _Line] = {}
        self._under_way: set[Letter] = set()
        self._lock = threading.Lock()

    def send(self, tensor: Tensor, part: int, to: int) -> Letter:
        """Begin to hand a tensor of an own part to another."""
        return self._begun(self._letter(tensor, part, to, sends=True), to)

    def receive(self, into: Tensor, part: int, sender: int) -> Letter:
        """Begin to fill a tensor of an own part with what another sends next."""
        return self._begun(self._letter(into, sender, part, sends=False), sender)

    def give_up(self, why: str) -> None:
        """End all that is under way."""
        with self._lock:
            left, self._under_way = self._under_way, set()
        for letter in left:
            letter.end(why)

    def forget(self) -> None:
        """Let go of the connections, which the hub closes."""
        with self._lock:
            self._lines = {}

    # Inside

    def _letter(self, tensor: Tensor, source: int, target: int, *, sends: bool) -> Letter:
        return Letter(tensor, source, target, sends=sends, timeout=self.hub.timeout, busy=self.hub.busy)

    def _begun(self, letter: Letter, other: int) -> Letter:
        with self._lock:
            self._under_way.add(letter)
        letter.add_done_callback(self._done)
        self.hub.check()  # after it is listed: who gives up meanwhile ends what is listed
        process = self.hub.deal[other]
        letter.travels = process != self.hub.me
        if letter.travels:
            self._line(process).begin(letter)
        else:
            self._hand_over(letter)
        return letter

    def _done(self, letter: Letter) -> None:
        with self._lock:
            self._under_way.discard(letter)

    def _hand_over(self, letter: Letter) -> None:
        """Copy a tensor within this process, once both ends are there."""
        with self._lock:
            early = self._early.setdefault((letter.source, letter.target), deque())
            if not early or early[0].sends == letter.sends:
                early.append(letter)
                return
            other = early.popleft()
        sent, into = (letter, other) if letter.sends else (other, letter)
        if sent.tensor.shape != into.tensor.shape:
            shapes = [list(each.tensor.shape) for each in (sent, into)]
            raise RuntimeError(
                f"part {sent.source} sends {shapes[0]}, part {sent.target} expects {shapes[1]}"
            )
        into.tensor.copy_(sent.tensor)
        for each in (sent, into):
            each.end()

    def _line(self, process: int) -> "_Line":
        with self._lock:
            if process not in self._lines:
                self._lines[process] = _Line(self.hub, f"letters/{self.name}", process)
            return self._lines[process]


class _Line:
    """The connection to another process: what is begun before it stands departs once it does."""

    def __init__(self, hub: "Hub", name: str, process: int) -> None:
        self.hub, self.processes = hub, sorted([hub.me, process])
        self.name = f"{name}/{'-'.join(map(str, self.processes))}"
        self.place = self.processes.index(process)
        self._group: Any = None
        self._early: list[Letter] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._connect, name="weft-line", daemon=True).start()

    def begin(self, letter: Letter) -> None:
        """Have a message depart."""
        with self._lock:
            if self._group is None:
                self._early.append(letter)
            else:
                self._depart(letter)

    def _connect(self) -> None:
        try:
            # However long the other takes to its first message: who waits for one has a bound.
            group = self.hub.connect(self.name, self.processes, patience=math.inf)
            with self._lock:
                self._group = group
                for letter in self._early:
                    self._depart(letter)
                self._early = []
        except RuntimeError as error:
            self.hub.give_up(str(error))

    def _depart(self, letter: Letter) -> None:
        # Messages of two parts keep their order; those of others may come in between.
        letter.depart(self._group, self.place, letter.source * len(self.hub.deal) + letter.target)
