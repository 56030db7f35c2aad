"""The `weft` command: reads the command line and turns a command's errors into one line and an exit code.

Commands import what they need when they run, so that `weft --help` answers at once.
Exit codes: 0 done · 2 the user's mistake · 3 a worker was lost, or code of the user raised · 130 interrupted.
"""

import argparse
import atexit
import errno
import os
import re
import sys
import sysconfig
import threading
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from weft import process
from weft.cli import (
    algorithm,
    bench,
    doctor,
    explain,
    flatten,
    infer,
    ingest,
    partition,
    planning,
    report,
    scale,
    selftest,
    simulate,
    train,
    validate,
)
from weft.cli.limited import as_it_ended, run_limited
from weft.cli.progress import clear_step
from weft.comm.failure import INTERRUPTED, leave, seconds
from weft.comm.signals import ended_by_signals
from weft.errors import DataNote, InputError, WeftError, WeftWarning, WorkerLost
from weft.sizes import shown

COMMANDS = {
    "train": train,
    "scale": scale,
    "plan": planning,
    "simulate": simulate,
    "ingest": ingest,
    "validate": validate,
    "flatten": flatten,
    "infer": infer,
    "partition": partition,
    "algorithm": algorithm,
    "report": report,
    "explain": explain,
    "bench": bench,
    "selftest": selftest,
    "doctor": doctor,
}

# What the machine can refuse without weft being at fault; anything else keeps its traceback.
_REFUSALS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOENT,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.EMFILE,
    errno.ENOMEM,
}
_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")
# torch has no type of its own for this
_NO_MEMORY = re.compile(
    "DefaultCPUAllocator: can't allocate memory|Storage size calculation overflowed|bad_?alloc"
    "|can't start new thread"
)
_NO_ROOM = re.compile(
    "failed to map segment|cannot allocate memory|cannot create shared object", re.IGNORECASE
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; that of this process, where the words are its own."""
    if arguments is not None:
        return _guarded(arguments)
    code = run_limited(sys.argv[1:])
    if code is None:
        code = as_it_ended(_guarded(None))
        if any(thread.daemon for thread in threading.enumerate()):
            # One that is in the middle of C++ code when Python goes away would abort the process.
            atexit._run_exitfuncs()
            leave(code)
    return code


def _guarded(arguments: Sequence[str] | None) -> int:
    """Run one command, with warnings as lines and what the user's own code raises told as that."""
    began = time.time()
    process.prepare()
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            return _run(arguments, began)
        except Exception as error:
            where = _of_the_user(error)
            if where is None:
                raise
            traceback.print_exc()
            return _fail(f"{where} raised {type(error).__name__}: {error}", WorkerLost.exit_code)


def _of_the_user(error: Exception) -> str | None:
    """Return the place in the user's own code, a model, a loss or a metric, from which an error came."""
    others = (str(Path(__file__).parents[1]), *(sysconfig.get_path(name) for name in _LIBRARIES), "<")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(others):
            return f"your code, {frame.filename}:{frame.lineno} in {frame.name},"
    return None


def _run(arguments: Sequence[str] | None, began: float) -> int:
    try:
        with ended_by_signals():
            options = parser().parse_args(_joined(sys.argv[1:] if arguments is None else arguments))
            options.began = seconds("WEFT_BEGAN", began)  # a worker serves the command that started it
            return int(options.run(options))
    except WeftError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED, kind="")
    except BrokenPipeError:
        # The reader of our output went away; give Python nothing to complain about at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        return _fail(f"{error.filename or 'input or output'}: {error.strerror}", InputError.exit_code)
    except ImportError as error:
        if not _NO_ROOM.search(str(error)):
            raise
        return _fail(
            f"there is no memory to load a library ({error}); is it limited (ulimit -v)?",
            InputError.exit_code,
        )
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not _NO_MEMORY.search(str(error)):
            raise
        asked = re.search(r"allocate (\d+) bytes", str(error))
        size = f" for {shown(int(asked[1]))}" if asked else ""
        return _fail(
            f"there is no memory{size}; use a smaller model or batch, or more workers", InputError.exit_code
        )


def _joined(words: Sequence[str]) -> list[str]:
    """Return the words of a command line; a list of numbers that begins with a minus is an option's value."""
    joined: list[str] = []
    for word in words:
        option = joined[-1] if joined else ""
        if re.fullmatch(r"--[^=]+", option) and re.fullmatch(r"-\d+(,-?\d+)+", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = _Parser(
        prog="weft",
        description="Train graph neural networks on graphs that outgrow one process.",
        epilog="example: weft train --set data.path=cora.npz --set model.name=gcn",
        allow_abbrev=False,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and stop")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    for name, module in COMMANDS.items():
        first, _, example = (module.__doc__ or "").partition("\n\n")
        command = commands.add_parser(
            name,
            help=first,
            description=first,
            epilog=example,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return top


class _Parser(argparse.ArgumentParser):
    """A parser whose mistakes are one line."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Take words behind options as more of a list: `selftest equivalence --parts 2 recipe.toml`."""
        found, rest = super().parse_known_args(args, namespace)
        lists = [action.dest for action in self._actions if action.nargs == "*" and not action.option_strings]
        if not lists:
            return found, rest
        words = [word for word in rest if not word.startswith("-")]
        setattr(found, lists[0], [*(getattr(found, lists[0]) or []), *words])
        return found, [word for word in rest if word.startswith("-")]

    def error(self, message: str) -> NoReturn:
        self.exit(InputError.exit_code, f"weft: error: {message} (see {self.prog} --help)\n")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        import weft

        print(f"weft {weft.__version__}")
        parser.exit()


def _fail(message: str, code: int, *, kind: str = "error: ") -> int:
    clear_step()
    print(f"weft: {kind}{' '.join(message.split())}", file=sys.stderr)
    return code


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    # Warnings of libraries are for developers; ours are for the person at the terminal.
    for ours, kind in ((WeftWarning, "warning"), (DataNote, "note")):
        if issubclass(category, ours):
            print(f"weft: {kind}: {message}", file=sys.stderr)
