"""Running a partitioner where it can do no harm, and checking what it gives.

Partitioning libraries are known to crash, to hold the interpreter for minutes and to return rubbish without a
word. So each runs in a child process with a bound on its time; arrays travel as .npy files, and every node is
accounted for before anything is built on the result.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft import errors
from weft.config import bind
from weft.errors import PartitionError, RecipeError, WeftWarning
from weft.graph.graph import Graph
from weft.graph.parts.assignment import Assignment
from weft.partitioners import child
from weft.partitioners.base import Partitioner, partitioners
from weft.partitioners.constraints import constraints
from weft.partitioners.quality import HIDDEN, LAYERS, measure

TIMEOUT = 3600.0
LOOK = 0.5
"""Seconds between two looks at how far a child is."""


def partition(
    graph: Graph,
    num_parts: int,
    *,
    name: str = "metis",
    seed: int = 0,
    timeout: float = TIMEOUT,
    hidden: int = HIDDEN,
    layers: int = LAYERS,
    watch: Callable[[float], None] | None = None,
    **options: Any,
) -> Assignment:
    """Return the part of each node (or edge), verified, with its quality.

    `options` are those of the named partitioner. It runs in a child process for at most `timeout` seconds.
    `hidden` and `layers` are the model that the predicted bytes are for.
    """
    # `watch` is told which share of its work the partitioner has done, if it tells.
    if num_parts < 1:
        raise RecipeError(f"parts: expected a whole number of at least 1, got {num_parts}")
    kind = partitioners[name]
    bound = bind(kind, {"seed": seed, **options}, f"partitioner {name!r}")
    _check_given(kind, bound, name)
    kind(**bound)  # a mistake in the options is the caller's, and shown without a child
    count = graph.num_nodes if kind.cuts == "nodes" else graph.num_edges
    # One part is no question, and neither are fewer nodes than parts, which libraries get wrong.
    if num_parts == 1 or (kind.cuts == "nodes" and count <= num_parts and "path" not in bound):
        parts = torch.arange(count, dtype=torch.int32) % num_parts
    else:
        asked = _ChildRun(name, kind, bound, timeout, watch)
        parts = _run(graph, num_parts, asked)
    parts = verify(parts, count, num_parts, name=name)
    parts, moved = fill_empty(parts, num_parts) if kind.cuts == "nodes" else (parts, 0)
    _tell_broken_bounds(graph, parts, num_parts, name, kind(**bound))
    quality = measure(graph, parts, num_parts, cuts=kind.cuts, hidden=hidden, layers=layers, moved=moved)
    return Assignment(parts, num_parts, name, bound, kind.cuts, quality)


def _tell_broken_bounds(
    graph: Graph, parts: Tensor, num_parts: int, name: str, partitioner: Partitioner
) -> None:
    """Warn, with the numbers, where a part holds more than the partitioner's own bound allows."""
    imbalance = getattr(partitioner, "imbalance", None)
    if imbalance is None or graph.num_nodes <= num_parts:
        return
    limits = constraints(graph, num_parts, imbalance, getattr(partitioner, "balance", "all"))
    if broken := limits.broken(parts.numpy()):
        warnings.warn(
            f"partitioner {name!r} passes its bound: {', '.join(broken)}; "
            "allow more imbalance, or take fewer parts",
            WeftWarning,
            stacklevel=3,
        )


def _check_given(kind: type[Partitioner], options: Mapping[str, Any], name: str) -> None:
    for option, parameter in signature(kind).parameters.items():
        if parameter.default is Parameter.empty and option not in options:
            raise RecipeError(
                f"partitioner {name!r} needs the option {option!r}; give it with --set {option}=…"
            )


def verify(parts: Any, count: int, num_parts: int, *, name: str) -> Tensor:
    """Return the parts as int32 if there is one in range for each of `count`, else say what is wrong."""
    parts = torch.as_tensor(parts)
    if tuple(parts.shape) != (count,) or parts.is_floating_point() or parts.dtype == torch.bool:
        got = f"{parts.dtype} of shape {tuple(parts.shape)}"
        raise PartitionError(f"partitioner {name!r} gave {got}, expected {count:,} part numbers; {_OTHERS}")
    outside = (parts < 0) | (parts >= num_parts)
    if bool(outside.any()):
        first = int(outside.nonzero()[0])
        raise PartitionError(
            f"partitioner {name!r} left {int(outside.sum()):,} of {count:,} outside 0 … {num_parts - 1} "
            f"(the first: number {first:,} in part {int(parts[first])}); {_OTHERS}"
        )
    made: Tensor = parts.int()
    return made


def fill_empty(parts: Tensor, num_parts: int) -> tuple[Tensor, int]:
    """Return the parts without empty ones, and how many nodes moved: halves of the largest parts go there.

    With fewer nodes than parts some must stay empty.
    """
    counts = torch.bincount(parts, minlength=num_parts)
    moved = 0
    for empty in (counts == 0).nonzero().flatten().tolist():
        largest = int(counts.argmax())
        if counts[largest] < 2:
            break
        if not moved:
            parts = parts.clone()
        rows = (parts == largest).nonzero().flatten()
        rows = rows[len(rows) - min(len(rows) // 2, max(len(parts) // num_parts, 1)) :]
        parts[rows] = empty
        counts[largest] -= len(rows)
        counts[empty] = len(rows)
        moved += len(rows)
    return parts, moved


_OTHERS = "try another one: 'ldg' and 'hash' need nothing but weft"


class _ChildRun(NamedTuple):
    """A partitioner, and how it is run."""

    name: str
    kind: type[Partitioner]
    options: Mapping[str, Any]
    timeout: float
    watch: Callable[[float], None] | None


def _run(graph: Graph, num_parts: int, asked: _ChildRun) -> Tensor:
    name, kind, options = asked.name, asked.kind, asked.options
    # A child could not import a partitioner that a script defines.
    if not kind.isolated or kind.__module__ == "__main__":
        return kind(**options).assign(graph, num_parts)
    with tempfile.TemporaryDirectory(prefix="weft-partition-") as place:
        folder = Path(place)
        child.write_task(folder, graph, num_parts, module=kind.__module__, name=name, options=options)
        with open(folder / "output.txt", "wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "weft.partitioners.child", place, str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_WAIT_POLICY": "passive"},
            )
            _wait(process, folder, asked)
        if process.returncode == 0 and (folder / child.RESULT).is_file():
            return torch.from_numpy(np.load(folder / child.RESULT, allow_pickle=False))
        raise _failure(folder, name, process.returncode)


def _wait(process: "subprocess.Popen[bytes]", folder: Path, asked: _ChildRun) -> None:
    """Wait for a child to end, and tell meanwhile how far it is; end it if it takes too long."""
    end = time.monotonic() + asked.timeout
    try:
        while True:
            left = end - time.monotonic()
            try:
                process.wait(max(left if asked.watch is None else min(left, LOOK), 0))
                return
            except subprocess.TimeoutExpired:
                if time.monotonic() >= end:
                    raise PartitionError(
                        f"partitioner {asked.name!r} was stopped after {asked.timeout:g} s; allow more time "
                        f"or {_OTHERS}"
                    ) from None
            if asked.watch is not None and (share := _share(folder)) is not None:
                asked.watch(share)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()


def _share(folder: Path) -> float | None:
    """Return which share of the work a child says it has done; None where it says nothing."""
    try:
        return float((folder / child.SHARE).read_text())
    except (OSError, ValueError):  # not yet there, or being written
        return None


def _failure(folder: Path, name: str, code: int) -> Exception:
    """Return the child's own error where it had one to tell, else one that says how it ended."""
    told = folder / child.ERROR
    if told.is_file():
        error = json.loads(told.read_text())
        kind = getattr(errors, error["kind"], None)
        if isinstance(kind, type) and issubclass(kind, errors.InputError):
            return kind(error["message"])
        return PartitionError(f"partitioner {name!r} failed: {error['kind']}: {error['message']}; {_OTHERS}")
    lines = (folder / "output.txt").read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
    if code == -signal.SIGKILL:
        return PartitionError(f"partitioner {name!r} was killed, most likely for lack of memory; {_OTHERS}")
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return PartitionError(f"partitioner {name!r} crashed ({how}): {last[:200]}; {_OTHERS}")
