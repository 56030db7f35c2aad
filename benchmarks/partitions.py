"""Partitions of the benchmarks' graphs, written once into a folder that is removed at the end."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import weft
from weft.events import dumps
from weft.graph.parts.partition import write_partition
from weft.partitioners import partition
from weft.strategies.base import strategies
from weft.train.workers.run_parts import cut


@contextmanager
def workspace() -> Iterator[Path]:
    """Give a folder for partitions."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        yield Path(folder)


def write(folder: Path, graph: weft.Graph, parts: int, **options: object) -> str:
    """Write a partition of nodes (`name` a partitioner) as workers read it, and return its path."""
    files = {"graph.json": dumps(graph.summary()).encode()}
    write_partition(folder, graph, partition(graph, parts, **options), files=files)
    return str(folder)


def write_for(folder: Path, graph: weft.Graph, workers: int, strategy: str, **options: object) -> str:
    """Write the partition that a strategy asks for, and return its path."""
    files = {"graph.json": dumps(graph.summary()).encode()}
    assignment = cut(graph, workers, strategies[strategy], options, workers=workers)
    write_partition(folder, graph, assignment, files=files)
    return str(folder)
