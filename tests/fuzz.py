"""Damage files of every format for a while, run by hand: what was neither read nor refused is told.

    python tests/fuzz.py --seconds 45 --seed 70000 [READER ...]

The forms are those of `tests/faults/test_readers.py`. A reader that raises another error than weft's, takes
seconds of its own, or far more memory than the file, is told with the seed that gives the form again.
"""

import argparse
import contextlib
import io
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

for folder in ("support", "faults"):
    sys.path.insert(0, str(Path(__file__).parent / folder))

import test_readers  # noqa: E402

from weft.errors import WeftError  # noqa: E402

FORMS = 12  # of a file, before the next seed
SECONDS, MEBIBYTES = 5.0, 300


class Trial:
    """Reads damaged files until its time is over, and keeps what went wrong."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        self.files = 0
        self.wrong: Counter[str] = Counter()

    def read(self, read: Callable[[Path], Any], path: Path, which: tuple[Any, ...]) -> None:
        """Read one form, and note another end than a value or a line."""
        self.files += 1
        began, before = time.process_time(), _peak()
        told = _told(read, path)
        if time.process_time() - began > SECONDS:
            told = told or "takes long"
        if _peak() - before > MEBIBYTES:
            told = told or "takes memory"
        if told:
            self.wrong[f"{which}: {told}"] += 1
        if time.monotonic() > self.until:
            raise TimeoutError

    def run(self, name: str, seed: int) -> None:
        """Damage the files of one format, seed after seed."""
        usual, test_readers.read_or_refuse = test_readers.read_or_refuse, self.read
        try:
            while True:
                with tempfile.TemporaryDirectory() as made, quiet():
                    test_readers.tried(name, Path(made), FORMS, seed=seed)
                seed += 100
        except TimeoutError:
            return
        finally:
            test_readers.read_or_refuse = usual


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Let nothing be said."""
    said = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        warnings.simplefilter("ignore")
        yield


def _told(read: Callable[[Path], Any], path: Path) -> str:
    """Return what a reader raised that is not one line of weft's, and where; nothing where it did not."""
    try:
        read(path)
    except WeftError as error:
        return "says more than a line" if "\n" in str(error) else ""
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {last.filename}:{last.lineno}: {error}"
    return ""


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main() -> None:
    """Print a line for each format: how many files were tried, and how many went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("readers", nargs="*", default=list(test_readers.READERS), metavar="READER")
    parser.add_argument("--seconds", type=float, default=45, help="for each reader")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for name in asked.readers:
        trial = Trial(asked.seconds)
        trial.run(name, asked.seed)
        print(f"{name}: {trial.files:,} files, {trial.wrong.total()} neither read nor refused", flush=True)
        for told in trial.wrong:
            print(f"  {told}", flush=True)


if __name__ == "__main__":
    main()
