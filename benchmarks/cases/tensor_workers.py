"""Where tensor workers pay: a product and its gradients here, and by one worker process."""

import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.graphs import tiny
from benchmarks.measure import Study
from weft.strategies.tensor_workers.operators import OPERATORS, gradient_of
from weft.strategies.tensor_workers.pool import TensorPool

ROWS = 8192
WIDTHS = (128, 512, 1024, 2048)
REPEAT = 5
NAME = "apply_vertex"
Tasks = Callable[[str, list[Tensor], dict[str, Tensor]], object]


def tensor_workers() -> Iterator[str]:
    """Give one row per width: milliseconds of a product and its gradients on one core, here and elsewhere."""
    yield "| columns | here | by a worker | of it spent here | sent and received |"
    yield "|---|---|---|---|---|"
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as a worker has
    pool = TensorPool(1)
    try:
        for width in (32, 64) if tiny() else WIDTHS:
            yield _row(pool, width)
    finally:
        pool.close()
        torch.set_num_threads(before)


def _row(pool: TensorPool, width: int) -> str:
    rows, towards = torch.randn(256 if tiny() else ROWS, width), torch.ones(256 if tiny() else ROWS, width)
    weights = {f"0.weight{width}": torch.randn(width, width), f"0.bias{width}": torch.zeros(width)}
    given = (rows, towards, weights)
    _compare(pool, *given)  # the worker starts, and pulls the weights
    sent = pool.take_counts()["bytes"]
    here, _ = _median(_here, *given)
    away, own = _median(pool.run, *given)
    each = (pool.take_counts()["bytes"] - sent) / REPEAT
    return (
        f"| {width:,} | {here * 1e3:.1f} ms | {away * 1e3:.1f} ms | {own * 1e3:.1f} ms "
        f"| {each / 2**20:.0f} MiB |"
    )


def _here(name: str, arrays: list[Tensor], weights: dict[str, Tensor]) -> list[Tensor]:
    return OPERATORS[name](arrays, [*weights.values()])


def _compare(pool: TensorPool, rows: Tensor, towards: Tensor, weights: dict[str, Tensor]) -> None:
    """Refuse to time what computes something else."""
    for name, arrays in ((NAME, [rows]), (gradient_of(NAME), [rows, towards])):
        for one, other in zip(_here(name, arrays, weights), pool.run(name, arrays, weights), strict=True):
            torch.testing.assert_close(other, one)


def _median(run: Tasks, rows: Tensor, towards: Tensor, weights: dict[str, Tensor]) -> tuple[float, float]:
    """Return the seconds of a product and its gradients, and those that this process computed in them."""
    took, own = [], []
    for _ in range(REPEAT):
        began, computed = time.perf_counter(), time.process_time()
        run(NAME, [rows], weights)
        run(gradient_of(NAME), [rows, towards], weights)
        took.append(time.perf_counter() - began)
        own.append(time.process_time() - computed)
    return statistics.median(took), statistics.median(own)


CASES = [
    Study(
        "tensor_workers",
        f"a product of {ROWS:,} rows and its gradients, here and by a tensor worker",
        tensor_workers,
        note="apply_vertex and apply_vertex_gradient of as many columns to as many, float32, one core each; "
        f"medians of {REPEAT}. Spent here: seconds of the processor in this process, in which no other "
        "interval computes.",
    ),
]
