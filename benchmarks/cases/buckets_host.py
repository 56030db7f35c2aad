"""A bucket of Freebase86m's shape on a GPU, whose partitions come from host memory and go back there."""

import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.cases.buckets import steps_of
from benchmarks.graphs import tiny
from benchmarks.measure import Study
from weft.strategies.buckets.chunks import BucketBatches, BucketEdges, Candidates, EndPool
from weft.strategies.buckets.orders import oracle
from weft.strategies.buckets.training import PartitionRows

NODES, FACTS, RELATIONS, WIDTH = 86_054_151, 338_586_276, 14_824, 100
PARTITIONS, BUFFER = 16, 4


def host_rows(count: int, device: torch.device, *, pinned: bool) -> PartitionRows:
    """Return the rows of a partition in host memory."""
    values = torch.empty(count, WIDTH, pin_memory=pinned)
    values.copy_(torch.randn(count, WIDTH, device=device) * 1e-3)
    return PartitionRows(values, torch.zeros(count, pin_memory=pinned))


def random_facts(count: int, rows: int, relations: int) -> BucketEdges:
    """Return facts between any rows of two partitions."""
    ends = (torch.randint(0, most, (count,), dtype=torch.int32) for most in (rows, rows, relations))
    src, dst, relation = ends
    return BucketEdges(src, dst, relation, torch.zeros(count, dtype=torch.int64), [(0, 0)])


class Watch:
    """Says how long something took until the GPU had done it."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._begun = device, time.perf_counter()

    def seconds(self) -> float:
        """Return the seconds since it was made, or was asked before."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        before, self._begun = self._begun, time.perf_counter()
        return self._begun - before


def carried(rows: PartitionRows, device: torch.device, repeat: int = 3) -> tuple[float, float]:
    """Return the median seconds of a partition to the GPU, and back."""
    up, down, watch = [], [], Watch(device)
    for _ in range(repeat):
        there = rows.to(device)
        up.append(watch.seconds())
        rows.values.copy_(there.values)
        rows.total.copy_(there.total)
        down.append(watch.seconds())
    return statistics.median(up), statistics.median(down)


def trained(sides: Any, facts: BucketEdges, relations: int, device: torch.device) -> list[float]:
    """Return the seconds of buckets of so many facts, those of other draws each."""
    count, batch, chunk = (20, 500, 100) if tiny() else (1000, 50_000, 1000)
    how = Candidates(count=count, inbatch=False)
    steps, optimizer = steps_of("complex", WIDTH, relations, how, device.type)
    pools: Any = {end: EndPool(np.array([0, len(sides[end].values)])) for end in sides}
    took, watch = [], Watch(device)
    for bucket in range(6):
        shape: dict[str, int] = {"batch": batch, "chunk": chunk, "seed": 0, "epoch": 0, "bucket": bucket}
        batches = BucketBatches(facts, pools, how, **shape)
        steps.train(facts, batches, sides, optimizer=optimizer)
        took.append(watch.seconds())
    return took


def bucket() -> Iterator[str]:
    """Give what a bucket takes, and what follows for an epoch."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shrink = 1 if device.type == "cuda" and not tiny() else 1000
    rows, edges = NODES // PARTITIONS // shrink, FACTS // PARTITIONS**2 // shrink
    relations = max(10, RELATIONS // shrink)
    yield "| | seconds | |"
    yield "|---|---|---|"
    swap = {}
    for kind in ("as buckets do", *(("from pinned memory",) if device.type == "cuda" else ())):
        held = host_rows(rows, device, pinned=kind != "as buckets do")
        up, down = carried(held, device)
        rate = held.values.nbytes / 1e9
        swap[kind] = up + down
        yield f"| a partition of {rows:,} rows to the GPU, {kind} | {up:.3f} | {rate / up:.1f} GB/s |"
        yield f"| and back | {down:.3f} | {rate / down:.1f} GB/s |"
    sides = {end: host_rows(rows, device, pinned=False).to(device) for end in ("src", "dst")}
    first, _, *later = trained(sides, random_facts(edges, rows, relations), relations, device)
    took = statistics.median(later)
    yield f"| the first bucket, {edges:,} facts: kernels are made | {first:.2f} | |"
    yield f"| a bucket | {took:.3f} | {edges / took:,.0f} facts/s |"
    swaps = oracle(PARTITIONS, BUFFER) + BUFFER
    for kind, each in swap.items():
        whole = PARTITIONS**2 * took + swaps * each
        yield f"| an epoch, forecast: {swaps} partitions each way {kind}, no files | {whole:.0f} | |"


CASES = [
    Study(
        "buckets_host_tables",
        f"a bucket of Freebase86m's shape on a GPU, ComplEx, {WIDTH} numbers a row, {PARTITIONS} partitions",
        bucket,
        note=(
            "Facts are drawn; 1,000 candidates a side, batches of 50,000, chunks of 1,000. What a buffer of "
            f"{BUFFER} holds is on the GPU. Files, which a thread reads and writes, are not in the forecast."
        ),
    )
]
