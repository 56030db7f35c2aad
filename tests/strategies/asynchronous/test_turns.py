"""The turn goes to who is furthest behind of those that can go on."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from weft.strategies.asynchronous.turns import Place, Turns


class Asking:
    """Threads that wait for their turn and note when it came."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.turns = Turns(self.changed)
        self.order: list[int] = []
        self.raised: list[BaseException] = []
        self.threads: list[threading.Thread] = []
        self.turns.holder = 99

    def ask(self, interval: int, place: Place, found: Callable[[], Any]) -> None:
        thread = threading.Thread(target=self._ask, args=(interval, place, found), daemon=True)
        thread.start()
        self.threads.append(thread)
        deadline = time.monotonic() + 10
        while interval not in self.turns._waiting and time.monotonic() < deadline:
            time.sleep(0.001)

    def _ask(self, interval: int, place: Place, found: Callable[[], Any]) -> None:
        try:
            with self.changed:
                assert self.turns.wait(interval, place, found) == "found"
                self.order.append(interval)
                self.turns.give(interval)
        except RuntimeError as error:
            self.raised.append(error)

    def give(self) -> None:
        with self.changed:
            self.turns.give(99)

    def join(self) -> None:
        for thread in self.threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in self.threads)


def test_who_is_furthest_behind_goes_first_and_who_has_the_turn_is_not_disturbed() -> None:
    asking = Asking()
    for interval, place in ((0, (2, 0)), (1, (1, 3)), (2, (1, 1)), (3, (1, 1))):
        asking.ask(interval, place, lambda: "found")
    assert asking.order == []
    asking.give()
    asking.join()
    assert asking.order == [2, 3, 1, 0]


def test_who_cannot_go_on_is_passed_over_until_somebody_looks_again() -> None:
    asking, there = Asking(), []
    asking.ask(0, (0, 0), lambda: "found" if there else None)
    asking.ask(1, (5, 0), lambda: "found")
    asking.give()
    asking.threads[1].join(10)
    assert asking.order == [1]
    there.append(True)
    with asking.changed:
        asking.turns.deal()
    asking.join()
    assert asking.order == [1, 0]


def test_what_fails_while_somebody_looks_is_told_to_all() -> None:
    asking = Asking()

    def broken() -> str:
        raise RuntimeError("torn")

    asking.ask(0, (0, 0), broken)
    asking.ask(1, (1, 0), lambda: "found")
    asking.give()
    asking.join()
    assert asking.order == []
    assert [str(error) for error in asking.raised] == ["torn", "torn"]
    with pytest.raises(RuntimeError, match="torn"):
        asking.turns.check()
