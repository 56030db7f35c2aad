"""What every Python process of a mutation test loads first: notes what is entered, or loads a mutant."""

import importlib.util
import os
import sys
import threading
from importlib.machinery import ModuleSpec
from types import FrameType
from typing import Any

NOTES = os.environ.get("MUTATE_NOTES", "")
seen: set[Any] = set()


def note(frame: FrameType, event: str, argument: Any) -> None:
    """Write down that the present test enters a function of weft, the first time."""
    code = frame.f_code
    if code not in seen:
        seen.add(code)
        if "/src/weft/" in code.co_filename and os.path.exists(f"{NOTES}/test"):
            with open(f"{NOTES}/test") as test, open(f"{NOTES}/entered", "a") as entered:
                entered.write(f"{test.read()}\t{code.co_filename}\t{code.co_firstlineno}\n")


def pytest_runtest_logstart(nodeid: str, location: Any) -> None:
    """Tell all processes which test runs."""
    with open(f"{NOTES}/test", "w") as test:
        test.write(nodeid)
    seen.clear()


def pytest_runtest_logreport(report: Any) -> None:
    """Write down how long it took."""
    with open(f"{NOTES}/times", "a") as times:
        times.write(f"{report.nodeid}\t{report.duration}\n")


class Mutant:
    """Finds one module in another file than all others."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return where the mutant is, of its module alone."""
        module, file = os.environ["MUTANT"].split("=")
        return importlib.util.spec_from_file_location(name, file) if name == module else None


if NOTES:
    os.register_at_fork(after_in_child=seen.clear)
    threading.settrace(note)  # type: ignore[arg-type]
    sys.settrace(note)  # type: ignore[arg-type]
if "MUTANT" in os.environ:
    sys.meta_path.insert(0, Mutant)  # type: ignore[arg-type]
