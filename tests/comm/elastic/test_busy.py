"""How long a process computes: waiting counts when all of its parts do."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from weft.comm.elastic.busy import Busy


class Part:
    """A part in a thread of its own, which does what it is told."""

    def __init__(self, busy: Busy) -> None:
        self.busy, self.thread, self.held = busy, ThreadPoolExecutor(1), ExitStack()
        self.thread.submit(busy.enrol).result(10)

    def waits(self) -> None:
        self.thread.submit(self.held.enter_context, self.busy.waiting()).result(10)

    def goes_on(self) -> None:
        self.thread.submit(self.held.close).result(10)


def test_time_counts_unless_all_parts_wait() -> None:
    clock = [0.0]
    busy = Busy(2, now=lambda: clock[0])
    first, second = Part(busy), Part(busy)
    first.waits()
    clock[0] = 2.0
    second.waits()  # from here on nobody computes
    clock[0] = 5.0
    assert busy.seconds() == 2.0
    second.goes_on()
    clock[0] = 6.0
    first.goes_on()
    clock[0] = 10.0
    assert busy.seconds() == 7.0


def test_a_thread_that_is_no_part_holds_nobody_up() -> None:
    clock = [0.0]
    busy = Busy(1, now=lambda: clock[0])
    with busy.waiting():
        clock[0] = 3.0
        assert busy.seconds() == 3.0
