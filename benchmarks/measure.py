"""How a case is measured: contenders by turns in one process for time, one fresh process each for memory."""

import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Step = Callable[[], Any]
_LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Case:
    """One comparison: the same work done by weft and by its rivals, on the same data."""

    name: str
    title: str
    setup: Callable[[], Any]
    """Make the data that all contenders share."""
    contenders: dict[str, Callable[[Any], Step]]
    """From the shared data, the step of each contender; the first one is weft's."""
    must: float | None = None
    goal: float | None = None
    """The ratio to the best rival, or to `against`, that we require and that we aim at."""
    against: str = ""
    """The rival that `must` and `goal` are about; "" is the best."""
    repeat: int = 5
    seconds: float = float("inf")
    """No round begins after so long, but the third."""
    memory: bool = False
    memory_must: float | None = None
    memory_goal: float | None = None
    check: Callable[[dict[str, Any]], None] | None = None
    """Compares what the contenders' steps return; raises when they did not do the same work."""
    note: str = ""


@dataclass(frozen=True)
class Study:
    """A table whose rows a function measures; it answers to the same `run` as a case."""

    name: str
    title: str
    rows: Callable[[], Iterable[str]]
    """Gives the lines of a Markdown table as they are measured; `files` may be filled meanwhile."""
    note: str = ""
    files: dict[str, str] = field(default_factory=dict)
    """Pictures and the like, by name, to be written beside the result."""

    def run(self, threads: int) -> dict[str, Any]:
        """Return the finished table with what is needed to judge it."""
        from benchmarks.run import environment

        print(f"\n{self.title}")
        table = []
        for line in self.rows():
            print("  " + line, flush=True)
            table.append(line)
        return {
            "case": self.name,
            "title": self.title,
            "note": self.note,
            "table": table,
            "files": self.files,
            "environment": environment(threads),
        }


@dataclass
class Timing:
    """The seconds of one contender, one number a round."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def summary(self) -> dict[str, float]:
        return {"median": self.median, "min": min(self.seconds), "max": max(self.seconds)}


def time_by_turns(steps: dict[str, Step], repeat: int, seconds: float = float("inf")) -> dict[str, Timing]:
    """Return the times of all steps, taken by turns so that a busy moment hits every contender."""
    timings = {name: Timing() for name in steps}
    begun = time.perf_counter()
    for done in range(repeat):
        if done >= _LEAST_ROUNDS and time.perf_counter() - begun > seconds:
            break
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            timings[name].seconds.append(time.perf_counter() - start)
    return timings


def peak_above_baseline(step: Step) -> int:
    """Return by how many bytes the resident size rises above the present one during a step."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    baseline = _status("VmRSS")
    step()
    return max(0, _status("VmHWM") - baseline)


def agree(results: dict[str, Any], tolerance: float = 1e-4) -> None:
    """Raise unless every contender's tensors equal the first one's within max|Δ| / max(1, max|reference|)."""
    first, *others = results.items()
    for name, tensors in others:
        for index, (ours, theirs) in enumerate(zip(_tensors(first[1]), _tensors(tensors), strict=True)):
            error = (ours - theirs).abs().max().item() / max(1.0, theirs.abs().max().item())
            if not error <= tolerance:
                raise AssertionError(f"{first[0]} and {name} differ by {error:.2e} in result {index}")


def load_average() -> float:
    """Return how many processes wanted a core in the last minute, this one included."""
    return os.getloadavg()[0]


def _tensors(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {name}")


def with_gradients(forward: Callable[[], Tensor], leaves: list[Tensor], grad: Tensor) -> Step:
    """Return a step that runs forward and backward and gives the output and every leaf's gradient."""

    def step() -> list[Tensor]:
        for leaf in leaves:
            leaf.grad = None
        out = forward()
        out.backward(grad)
        return [out.detach(), *[leaf.grad for leaf in leaves if leaf.grad is not None]]

    return step


def processor() -> str:
    """Return the processor in words, for the head of a result."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return f"{torch.get_num_threads()} threads"
