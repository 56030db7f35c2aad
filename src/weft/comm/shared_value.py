"""A small value that members of a group change in turn, in the store of the run: a lock server's, say.

A change reads the value, makes the next one of it and writes that only where nobody was faster; else it
begins again. So members decide alike who has what, without one of them that serves the others.
"""

import json
import secrets
import time
from collections.abc import Callable
from typing import Any, TypeVar

from weft.comm.elastic.part_link import PartHeart
from weft.comm.heartbeat import Heartbeat
from weft.comm.run_store import RunStore
from weft.errors import WorkerLost

Answer = TypeVar("Answer")
STILL = 3600.0
"""Seconds in which a value that somebody waits for was not changed, after which the run ends."""
_PAUSE = 0.002
_LONGEST = 0.1


class SharedValue:
    """A JSON value under a name, None at first; the same for all members that asked for it."""

    def __init__(
        self, store: RunStore, key: str, heart: Heartbeat | PartHeart, *, timeout: float, still: float = STILL
    ) -> None:
        self._store, self._key, self._heart = store, key, heart
        self._timeout, self._still = timeout, still

    def read(self) -> Any:
        """Return the value."""
        return self._loaded(self._asked(self._store.read, self._key))

    def change(self, work: Callable[[Any], tuple[Any, Answer]]) -> Answer:
        """Put a new value in the place of the old one; `work` gives it, and what is returned.

        It may be called again, with what another member wrote meanwhile.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            before = self._asked(self._store.read, self._key)
            found = self._loaded(before)
            value, answer = work(found)
            if before is not None and json.dumps(value) == json.dumps(found):
                return answer
            # With a word of its own: of two members that write the same both would find it written.
            text = json.dumps([secrets.token_hex(8), value])
            if self._asked(self._store.swap, self._key, before, text):
                return answer
            if time.monotonic() > deadline:
                raise self._heart.blame(RuntimeError("Timed out: the store takes no change"), "shared value")

    def wait(self, work: Callable[[Any], tuple[Any, Answer | None]]) -> Answer:
        """Change the value as soon as `work` has an answer, however long that takes while others go on."""
        pause, seen, since = _PAUSE, self._asked(self._store.read, self._key), time.monotonic()
        while (answer := self.change(work)) is None:
            self._heart.check()
            now = self._asked(self._store.read, self._key)
            if now != seen:
                pause, seen, since = _PAUSE, now, time.monotonic()
            elif time.monotonic() - since > self._still:
                raise WorkerLost(f"all workers live, and none has finished anything for {self._still:.0f} s")
            if self._heart.watch.gone():
                self._heart.check()
                raise self._heart.blame(RuntimeError("a worker has left"), "shared value")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)
        return answer

    def _asked(self, ask: Callable[..., Answer], *words: str | None) -> Answer:
        self._heart.doing = "shared value"  # not entered: members ask as often as they like
        try:
            return ask(*words)
        except RuntimeError as error:
            raise self._heart.blame(error, "shared value") from None

    @staticmethod
    def _loaded(text: str | None) -> Any:
        return None if text is None else json.loads(text)[1]
