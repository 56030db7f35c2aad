"""Learned rows in buckets: edges a second against the products of matrices alone, and memory."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.graphs import DATA, tiny
from benchmarks.measure import Study
from weft.draw import draw, fold
from weft.format import ArrayFile, new_directory, seal_directory
from weft.strategies.buckets.bucket_edges import EdgeFiles
from weft.strategies.buckets.buffer import Buffer
from weft.strategies.buckets.captured import CapturedSteps
from weft.strategies.buckets.chunks import BucketBatches, BucketEdges, Candidates, EndPool
from weft.strategies.buckets.division import Division
from weft.strategies.buckets.orders import Visit, epoch_rounds, oracle
from weft.strategies.buckets.partition_files import PartitionFiles
from weft.strategies.buckets.training import BucketSteps, Objective, PartitionRows
from weft.tasks.pair_loss import pair_loss
from weft.tasks.scores import make_scorer

WIDTH, NEGATIVES, SCORES = 400, 1000, ("complex", "distmult")


def steps_of(score: str, width: int, relations: int, how: Candidates, device: str = "cpu") -> tuple[Any, Any]:
    """Return what trains buckets, and the optimiser of the weights of relations."""
    torch.manual_seed(0)
    scorer = make_scorer(score, width, num_relations=relations).to(device)
    optimizer = torch.optim.Adagrad([*scorer.parameters(), torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    goal = Objective(scorer, pair_loss("softmax"), how)
    return CapturedSteps(BucketSteps(goal, device=torch.device(device))), optimizer


def facts(count: int) -> tuple[BucketEdges, int, int]:
    """Return some training facts of FB15k-237, how many entities and how many relations there are."""
    held = np.load(DATA / "fb15k237.npz")
    train = torch.from_numpy(held["train"].astype(np.int64))[:count]
    src, kind, dst = (train[:, place].contiguous() for place in range(3))
    return BucketEdges(src, dst, kind, torch.zeros_like(src), [(0, 0)]), len(held["entity"]), 237


def trained(
    score: str, edges: BucketEdges, entities: int, relations: int, **shape: Any
) -> tuple[float, float]:
    """Return CPU seconds and seconds of all edges, after a few that warm up."""
    how = Candidates(count=NEGATIVES, inbatch=False, exclude=shape.pop("exclude", "known"))
    device = shape.pop("device", "cpu")
    steps, optimizer = steps_of(score, WIDTH, relations, how, device)
    rows = PartitionRows(torch.randn(entities, WIDTH) * 1e-3, torch.zeros(entities)).to(torch.device(device))
    pools: Any = {end: EndPool(np.array([0, entities])) for end in ("src", "dst")}
    took = (0.0, 0.0)
    for epoch in range(3):  # on a GPU steps of every size are captured by the third
        batches = BucketBatches(edges, pools, how, seed=0, epoch=epoch, bucket=0, **shape)
        begun = time.process_time(), time.perf_counter()
        loss = steps.train(edges, batches, {"src": rows, "dst": rows}, optimizer=optimizer)
        float(loss)
        took = time.process_time() - begun[0], time.perf_counter() - begun[1]
    return took


def product_seconds(repeat: int = 20) -> float:
    """Return CPU seconds of the six products of matrices that 1,000 edges take."""
    queries, keys = torch.randn(1000, WIDTH), torch.randn(NEGATIVES, WIDTH)
    scores = torch.empty(1000, NEGATIVES)
    torch.mm(queries, keys.t(), out=scores)
    begun = time.process_time()
    for _ in range(repeat):
        for _ in range(2):
            torch.mm(queries, keys.t(), out=scores)
            torch.mm(scores, keys)
            torch.mm(scores.t(), queries)
    return (time.process_time() - begun) / repeat


def rates() -> Iterator[str]:
    """Give edges a second of each score, on one thread and on two."""
    edges, entities, relations = facts(4_000 if tiny() else 60_000)
    before = torch.get_num_threads()
    yield "| score | threads | edges a CPU second | edges a second | of one thread | limit | of it |"
    yield "|---|---|---|---|---|---|---|"
    for score in SCORES:
        first = 0.0
        for threads in (1, 2):
            torch.set_num_threads(threads)
            limit = 1000 / product_seconds()
            cpu, wall = trained(score, edges, entities, relations, batch=1000, chunk=1000)
            rate, of_cpu = len(edges) / wall, len(edges) / cpu
            first = first or rate
            yield (
                f"| {score} | {threads} | {of_cpu:,.0f} | {rate:,.0f} | {rate / first:.2f} | {limit:,.0f} | "
                f"{of_cpu / limit:.2f} |"
            )
    torch.set_num_threads(before)


def gpu_rates() -> Iterator[str]:
    """Give edges a second on a GPU, by the size of a batch."""
    edges, entities, relations = facts(4_000 if tiny() else 272_115)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    yield "| score | device | batch | chunk | known ends left out | edges a second |"
    yield "|---|---|---|---|---|---|"
    for score in SCORES:
        for batch, chunk in ((10_000, 1_000), (50_000, 5_000), (100_000, 10_000)):
            for exclude in ("own", "known"):
                shape = {"batch": batch, "chunk": chunk, "exclude": exclude, "device": device}
                _, wall = trained(score, edges, entities, relations, **shape)
                yield f"| {score} | {device} | {batch:,} | {chunk:,} | {exclude} | {len(edges) / wall:,.0f} |"


# Tables larger than memory


def sizes(part: int) -> dict[str, int]:
    """Return the shape of the generated graph and of its tables, or of a part of as much."""
    shrink = 1000 if tiny() else part
    partitions, buffer = (8, 3) if tiny() else (36, 5)
    shape = {"nodes": 20_000_000 // shrink, "edges": 60_000_000 // shrink, "width": 64}
    return {**shape, "partitions": partitions, "buffer": buffer}


def generated(folder: Path, division: Division, edges: int) -> EdgeFiles:
    """Write random edges bucket by bucket, none of them in memory together with others."""
    count = division.partitions**2
    offsets = np.arange(count + 1) * edges // count
    with new_directory(folder / "edges", overwrite=True) as partial:
        files = {name: ArrayFile(partial / f"{name}.npy", np.int32, (edges,)) for name in ("src", "dst")}
        files["relation"] = ArrayFile(partial / "relation.npy", np.int32, (edges,))
        for bucket in range(count):
            ids = np.arange(offsets[bucket], offsets[bucket + 1])
            for lane, (end, partition) in enumerate(zip(("src", "dst"), divmod(bucket, division.partitions))):
                bits = draw(fold(1, 2), ids, lane).astype(np.uint64)
                files[end].append(
                    (bits * np.uint64(division.size(partition)) >> np.uint64(32)).astype(np.int32)
                )
            files["relation"].append(np.zeros(len(ids), np.int32))
        more = {"offsets": offsets, "groups": np.array([[0, 0]]), "group": np.zeros(1, np.int64)}
        for name, array in more.items():
            files[name] = ArrayFile(partial / f"{name}.npy", np.int64, array.shape)
            files[name].append(array)
        seal_directory(partial, {}, arrays={name: file.close() for name, file in files.items()})
    return EdgeFiles(folder / "edges", division)


def visit_trained(
    visit: Visit,
    rows: dict[int, PartitionRows],
    files: EdgeFiles,
    steps: Any,
    optimizer: Any,
    how: Candidates,
) -> int:
    """Train the buckets of a visit, and return how many edges they have."""
    seen = 0
    for bucket in visit.buckets:
        edges = files.read(bucket)
        number = bucket[0] * files.division.partitions + bucket[1]
        shape: dict[str, int] = {"batch": 10_000, "chunk": 50, "seed": 0, "epoch": 0, "bucket": number}
        batches = BucketBatches(edges, files.ends(bucket, how), how, **shape)
        sides: Any = {"src": rows[bucket[0]], "dst": rows[bucket[1]]}
        steps.train(edges, batches, sides, optimizer=optimizer)
        seen += len(edges)
    return seen


def child(kind: str, part: int) -> None:
    """Train an epoch of the generated graph with all tables in memory, or with a buffer of partitions."""
    shape = sizes(part)
    torch.set_num_threads(1)
    empty = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    division = Division(["node"], [0, shape["nodes"]], shape["partitions"], seed=1)
    how = Candidates(count=50, exclude="own")
    with tempfile.TemporaryDirectory(prefix="weft-buckets-") as name:
        edges = generated(Path(name), division, shape["edges"])
        files = PartitionFiles(Path(name), division, shape["width"])
        for partition in range(division.partitions):
            first = files.empty(partition)
            files.read(partition, 0, first)
            files.write(partition, 1, first)
            del first
        capacity = shape["partitions"] if kind == "memory" else shape["buffer"]
        buffer = Buffer(files, capacity)
        buffer.restore([1] * division.partitions)
        visits = [visit for each in epoch_rounds("buffered", division.partitions, capacity) for visit in each]
        if kind == "memory":  # a share of the epoch tells the rate; tables are read before it begins
            buffer.begin([tuple(range(division.partitions)), *(visit.partitions for visit in visits)])
            buffer.visit(0, tuple(range(division.partitions)))
            visits = visits[: max(4, len(visits) // 8)]
        steps, optimizer = steps_of("dot", shape["width"], 1, how)
        begun, of_cpu, seen = time.perf_counter(), time.process_time(), 0
        waited = buffer.waited
        buffer.begin([visit.partitions for visit in visits])
        for number, visit in enumerate(visits):
            rows = buffer.visit(number, visit.partitions)
            buffer.prefetch(number + 1)
            seen += visit_trained(visit, rows, edges, steps, optimizer, how)
            buffer.trained(visit.partitions, 2 + number)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - of_cpu
        buffer.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    told = {
        "edges": seen,
        "seconds": seconds,
        "cpu": cpu,
        "peak": peak,
        "empty": empty,
        "swaps": buffer.swaps,
        "waited": buffer.waited - waited,
    }
    print(json.dumps({**told, "read": files.bytes_read, "written": files.bytes_written}))


def memory(part: int = 1) -> Iterator[str]:
    """Give the rate and the peak memory with all tables in memory, and with a buffer."""
    shape = sizes(part)
    yield (
        "| tables | edges a second | of memory's | edges a CPU second | peak GiB | of it before | swaps "
        "| oracle | waited for the disk |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    first = 0.0
    for kind in ("memory", "files"):
        command = [
            sys.executable,
            "-c",
            f"from benchmarks.cases.buckets import child; child({kind!r}, {part})",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        told = json.loads(done.stdout.splitlines()[-1])
        rate = told["edges"] / told["seconds"]
        first = first or rate
        least = oracle(shape["partitions"], shape["buffer"]) if kind == "files" else 0
        swapped = told["swaps"] if kind == "files" else 0
        yield (
            f"| {kind} | {rate:,.0f} | {rate / first:.2f} | {told['edges'] / told['cpu']:,.0f} | "
            f"{told['peak'] / 2**30:.2f} | {told['empty'] / 2**30:.2f} | {swapped} | "
            f"{least} | {told['waited'] / told['seconds']:.1%} |"
        )


_MEMORY_NOTE = (
    "Peak memory is that of the process; what it had before is torch and weft themselves. In memory an "
    "eighth of the epoch is timed."
)
CASES = [
    Study(
        "buckets_rate",
        f"learned rows in buckets, FB15k-237, {WIDTH} numbers a row, {NEGATIVES:,} candidates a side",
        rates,
        note="The limit is six products of matrices for 1,000 edges, timed alone on as many threads.",
    ),
    Study(
        "buckets_rate_gpu",
        f"learned rows in buckets on a GPU, FB15k-237, {WIDTH} numbers a row, {NEGATIVES:,} candidates",
        gpu_rates,
    ),
    Study(
        "buckets_memory",
        "learned rows larger than memory: 20 M nodes × 64, 60 M edges, 36 partitions, a buffer of 5",
        memory,
        note=_MEMORY_NOTE,
    ),
    Study(
        "buckets_memory_tenth",
        "learned rows larger than memory, a tenth: 2 M nodes × 64, 6 M edges, 36 partitions, a buffer of 5",
        partial(memory, 10),
        note=_MEMORY_NOTE,
    ),
]
