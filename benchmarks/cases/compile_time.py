"""How long it takes to compile a message: the first of a process, one of many, and when it is known.

On a GPU also its kernels: with Triton's cache empty, in a new process that finds them there, and when known.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases.messages import WIDTH, Attention, EdgeConv, Gated, MoNet, Own
from benchmarks.graphs import tiny
from benchmarks.measure import Study, with_gradients
from weft import kernels
from weft.compiler.compile import compile_message, compiled
from weft.compiler.tracing.trace import Form, Role, trace
from weft.graph.message.block import Block

MESSAGES: dict[str, tuple[Callable[[], Own], str]] = {
    "EdgeConv, max": (lambda: EdgeConv("max"), "max"),
    "EdgeConv, mean": (lambda: EdgeConv("mean"), "mean"),
    "gated": (Gated, "sum"),
    "attention": (Attention, "softmax"),
    "MoNet": (MoNet, "sum"),
}
AGAIN = 20
MOST, MOST_KNOWN = 0.050, 0.020
MOST_ON_GPU = 3.0


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


def measured_on_gpu(name: str) -> dict[str, float]:
    """Return the seconds that the first step of a message takes longer than later ones, and what is known.

    Forward and backward; the GPU, Triton and the graph's other direction are ready before.
    """
    make, reduce = MESSAGES[name]
    torch.manual_seed(0)
    conv: Any = make().to("cuda")
    nodes, edges = (300, 6_000) if tiny() else (300_000, 6_000_000)
    draw = torch.Generator("cuda").manual_seed(0)
    src, dst = torch.randint(nodes, (2, edges), generator=draw, device="cuda")
    indptr, indices, _ = kernels.build_csr(src, dst, nodes)
    held = kernels.transpose_csr(indptr, indices, nodes)
    block = Block(indptr, indices, num_src=nodes, transposed=lambda: held)
    x = torch.randn(nodes, WIDTH, device="cuda").requires_grad_()
    ends: dict[str, Any] = (
        {"edge": (torch.rand(edges, 2, device="cuda"),)} if conv.takes_edges else {"dst": (x,)}
    )
    leaves = [x, *conv.parameters()]
    kernels.spmm(indptr, indices, x.detach())  # a kernel of the layers
    step = with_gradients(
        lambda: block.propagate(conv.of_edge, src=(x,), reduce=reduce, **ends).flatten(1),
        leaves,
        torch.ones(nodes, WIDTH, device="cuda"),
    )
    # products of nodes are torch's own, which also begins slowly
    torch.autograd.grad((x @ x.new_ones(WIDTH, WIDTH)).sum(), x)
    first, *later = (_waited(step) for _ in range(AGAIN))
    roles: list[Role] = ["source", "edge"] if conv.takes_edges else ["source", "destination"]
    given = [x, *ends.get("edge", (x,))]
    known = [_waited(lambda: compiled(conv.of_edge, roles, given, reduce)) for _ in range(AGAIN)]
    return {"first": first - statistics.median(later), "known": statistics.median(known)}


def _waited(call: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def _seconds(call: Callable[[], object]) -> float:
    began = time.process_time()  # of a core: what others do meanwhile does not count
    call()
    return time.process_time() - began


def rows() -> Iterator[str]:
    """Give milliseconds of each message, each in a process of its own."""
    yield "| message | first of a process | again | of it recording | known | required |"
    yield "|---|---|---|---|---|---|"
    for name in MESSAGES:
        found = _apart(name)
        told = " | ".join(f"{1000 * found[kind]:.2f} ms" for kind in ("first", "again", "recorded", "known"))
        yield f"| {name} | {told} | < {1000 * MOST:g} ms, known < {1000 * MOST_KNOWN:g} ms |"


def rows_on_gpu() -> Iterator[str]:
    """Give milliseconds of each message, in processes of their own: with Triton's cache empty, then kept."""
    yield "| message | no cache | Triton's cache kept, new process | known | required |"
    yield "|---|---|---|---|---|"
    for name in MESSAGES:
        with tempfile.TemporaryDirectory() as folder:
            first, kept = (_apart(name, "gpu", TRITON_CACHE_DIR=folder) for _ in range(2))
        told = (
            f"{1000 * first['first']:.0f} ms | {1000 * kept['first']:.1f} ms | {1000 * kept['known']:.2f} ms"
        )
        yield f"| {name} | {told} | < {MOST_ON_GPU:g} s, known < {1000 * MOST_KNOWN:g} ms |"


def _apart(*given: str, **environment: str) -> dict[str, float]:
    """Return what is measured in a new process."""
    command = [sys.executable, "-m", "benchmarks.cases.compile_time", *given]
    settings = os.environ | environment
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


CASES = [
    Study(
        "compile_time",
        f"compiling a message of width {WIDTH}, one thread",
        rows,
        note="Recording, rewriting and lowering; *known*: what a call pays to find that it was compiled.",
    )
]

if torch.cuda.is_available():
    CASES.append(
        Study(
            "compile_time_gpu",
            f"compiling a message of width {WIDTH} and its kernels, {torch.cuda.get_device_name()}",
            rows_on_gpu,
            note="What the first step, forward and backward, takes longer than later ones: recording, "
            "rewriting, lowering, and Triton's kernels made or read from its cache on disk; the GPU was in "
            "use before. *known*: what a call pays to find that it was compiled.",
        )
    )

if __name__ == "__main__":
    print(json.dumps((measured_on_gpu if len(sys.argv) > 2 else measured)(sys.argv[1])))
