"""How long it takes to compile a message: the first of a process, one of many, and when it is known."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases.messages import WIDTH, Attention, EdgeConv, Gated, MoNet, Own
from benchmarks.measure import Study
from weft.compiler.compile import compile_message, compiled
from weft.compiler.tracing.trace import Form, Role, trace

MESSAGES: dict[str, tuple[Callable[[], Own], str]] = {
    "EdgeConv, max": (lambda: EdgeConv("max"), "max"),
    "gated": (Gated, "sum"),
    "attention": (Attention, "softmax"),
    "MoNet": (MoNet, "sum"),
}
AGAIN = 20
MOST, MOST_KNOWN = 0.050, 0.020


def measured(name: str) -> dict[str, float]:
    """Return the seconds of a message in this process, which has compiled none yet."""
    torch.set_num_threads(1)
    make, reduce = MESSAGES[name]
    conv: Any = make()
    roles: list[Role] = ["source", "edge"] if conv.takes_edges else ["source", "destination"]
    given: list[Tensor] = [torch.empty(9, WIDTH), torch.empty(9, 2 if conv.takes_edges else WIDTH)]
    forms = [Form.of(role, each) for role, each in zip(roles, given)]
    first = _seconds(lambda: compile_message(conv.of_edge, forms, reduce))
    again = [_seconds(lambda: compile_message(conv.of_edge, forms, reduce)) for _ in range(AGAIN)]
    recorded = [_seconds(lambda: trace(conv.of_edge, forms)) for _ in range(AGAIN)]
    found = compiled(conv.of_edge, roles, given, reduce)
    assert not isinstance(found, str), found
    known = [_seconds(lambda: compiled(conv.of_edge, roles, given, reduce)) for _ in range(AGAIN)]
    medians = {"again": again, "recorded": recorded, "known": known}
    return {"first": first, **{name: statistics.median(each) for name, each in medians.items()}}


def _seconds(call: Callable[[], object]) -> float:
    began = time.process_time()  # of a core: what others do meanwhile does not count
    call()
    return time.process_time() - began


def rows() -> Iterator[str]:
    """Give milliseconds of each message, each in a process of its own."""
    yield "| message | first of a process | again | of it recording | known | required |"
    yield "|---|---|---|---|---|---|"
    for name in MESSAGES:
        command = [sys.executable, "-m", "benchmarks.cases.compile_time", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        found = json.loads(done.stdout)
        told = " | ".join(f"{1000 * found[kind]:.2f} ms" for kind in ("first", "again", "recorded", "known"))
        yield f"| {name} | {told} | < {1000 * MOST:g} ms, known < {1000 * MOST_KNOWN:g} ms |"


CASES = [
    Study(
        "compile_time",
        f"compiling a message of width {WIDTH}, one thread",
        rows,
        note="Recording, rewriting and lowering; *known*: what a call pays to find that it was compiled.",
    )
]

if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1])))
