"""A worker's process on a node of Ray, as the launcher has it."""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from weft.comm.failure import Failure

KILLED = -9
"""The exit code of a process that was lost without a word, as `subprocess` has it."""
_TELL = 10.0  # seconds after which a user is told that there is no room
_AWAY = 1.0  # seconds in which a keeper that was reached before must be reached again
_END = 10.0  # seconds that a node has to end a process before it is given up


class _GivenUpError(Exception):
    """A node does not answer."""


class RayProcess:
    """Follows one worker: a thread asks its keeper how it goes, until it has ended."""

    placed = False
    machine_lost = False
    """Whether its keeper was lost, which nothing of ours ends: with its node, or by Ray itself."""

    def __init__(
        self,
        ray: Any,
        keeper: Any,
        command: Sequence[str],
        env: dict[str, str],
        folder: Path,
        *,
        say: Callable[[str], None],
        out: TextIO,
    ) -> None:
        """`keeper` is a handle of a `WorkerKeeper` that Ray is to place; `out` takes what is printed."""
        self._ray, self._keeper, self._say = ray, keeper, say
        self._command, self._env, self._folder = list(command), env, folder
        self._streams = {"out": out, "err": sys.stderr}
        self._code: int | None = None
        self._killed = 0.0
        self._told = False
        self._thread = threading.Thread(target=self._follow, name="weft-ray", daemon=True)
        self._thread.start()

    def poll(self) -> int | None:
        """Return the exit code, None while it runs or waits for a node."""
        return self._code

    def kill(self) -> None:
        """Have it ended at once."""
        if self._code is None and not self._killed:
            self._killed = time.monotonic()
            if self.placed:
                self._keeper.end.remote()  # a process that is stopped, too: its keeper is not
            else:
                self._ray.kill(self._keeper)

    def wait(self) -> int:
        """Return the exit code when it has ended."""
        self._thread.join()
        assert self._code is not None, "the thread has set it"
        return self._code

    # The thread

    def _follow(self) -> None:
        code = KILLED
        try:
            address = self._asked(self._keeper.address.remote)
            self.placed = True
            wrong = self._asked(
                self._keeper.start.remote, self._command, self._env, str(self._folder), address
            )
            code = self._refused(wrong) if wrong else self._until_its_end()
        except _GivenUpError:
            pass
        except self._ray.exceptions.RayActorError as error:
            if error.actor_init_failed:
                code = self._refused(f"Ray could not start a worker: {_line(error)}")
            self.machine_lost = not (error.actor_init_failed or self._killed)
        except self._ray.exceptions.RayError as error:
            code = self._refused(f"a worker could not be started: {_line(error)}")
        finally:
            self._code = code
            self._let_go()

    def _until_its_end(self) -> int:
        while True:
            seen = self._asked(self._keeper.look.remote)
            for name, chunk in seen["printed"]:
                self._streams[name].write(chunk.decode(errors="replace"))
                self._streams[name].flush()
            if seen["code"] is not None:
                if seen["record"]:
                    self._keep(seen["record"])
                return int(seen["code"])

    def _refused(self, wrong: str) -> int:
        self._keep(Failure(int(self._env["RANK"]), "refused", wrong, exit_code=2).to_json())
        return 2

    def _keep(self, record: str) -> None:
        (Path(self._env["WEFT_FAILURES"]) / f"{self._env['RANK']}.json").write_text(record, encoding="utf-8")

    def _asked(self, call: Callable[..., Any], *given: Any) -> Any:
        """Return what a keeper answers; it may wait for a node as long as it likes."""
        began, reference = time.monotonic(), call(*given)
        away: tuple[float, Exception] | None = None
        while True:
            try:
                return self._ray.get(reference, timeout=0.3)
            except self._ray.exceptions.GetTimeoutError:
                now = time.monotonic()
                if self._killed and now - self._killed > _END:
                    raise _GivenUpError from None
                self._tell(now - began)
            except self._ray.exceptions.ActorUnavailableError as error:
                now = time.monotonic()
                away = away or (now, error)
                time.sleep(0.1)
                reference = call(*given)
            if away is not None and now - away[0] > _AWAY:
                # Ray is sure only after many seconds; the others wait for the next generation meanwhile.
                raise away[1]

    def _tell(self, waited: float) -> None:
        if self.placed or self._told or waited < _TELL:
            return
        self._told = True
        self._say(
            f"weft: Ray has no room yet for worker {self._env['RANK']}, which asks for "
            f"{self._env['OMP_NUM_THREADS']} CPUs; it comes when a node has them"
        )

    def _let_go(self) -> None:
        try:
            self._ray.kill(self._keeper)
        except (self._ray.exceptions.RayError, ValueError, RuntimeError):
            return  # it is gone, or Ray is


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
