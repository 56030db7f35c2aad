"""Measure weft against its rivals on this machine (in a source checkout).

examples:
  weft bench
  weft bench spmm
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from weft.errors import InputError, UnknownName
from weft.registry import suggest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("cases", nargs="*", metavar="CASE", help="cases to run (default: all)")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")


def run(options: argparse.Namespace) -> int:
    """Run the benchmarks of the source checkout."""
    root = checkout()
    sys.path.insert(0, str(root))
    benchmarks = import_module("benchmarks.run")
    known = list(benchmarks.all_cases())
    for name in options.cases:
        if name not in known:
            raise UnknownName(f"no case {name!r}; {suggest(name, known)}known: {', '.join(known)}")
    arguments = [*options.cases, *(["--list"] if options.list else [])]
    return int(benchmarks.main(arguments))


def checkout() -> Path:
    """Return the source checkout that this weft, or this folder, belongs to."""
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        if (root / "src" / "weft").is_dir() and (root / "benchmarks" / "run.py").is_file():
            return root
    raise InputError("the benchmarks are not in the installed package; run this in a source checkout of weft")
