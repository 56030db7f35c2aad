"""The graphs of the benchmarks: generated ones, and real ones from the data folder."""

import functools
import os
from pathlib import Path

import weft

DATA = Path(os.environ.get("WEFT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


@functools.cache
def rmat() -> weft.Graph:
    """Return the R-MAT graph of 2^18 nodes and 8,000,000 edges (.57 .19 .19) ."""
    return weft.datasets.datasets["rmat"](scale=18, edges=8_000_000, a=0.57, b=0.19, c=0.19, seed=0)


def tiny() -> bool:
    """Return whether cases are only to be seen running, on small inputs."""
    return os.environ.get("WEFT_BENCH_TINY") == "1"


@functools.cache
def communities(nodes: int, edges: int, **options: object) -> weft.Graph:
    """Return communities of about so many nodes and edges, or a hundredth of it where inputs are tiny."""
    shrink = 100 if tiny() else 1
    return weft.datasets.datasets["community"](nodes=nodes // shrink, degree=edges / nodes, **options)


@functools.cache
def real(name: str, **options: object) -> weft.Graph:
    """Return a real graph, or explain where it is looked for."""
    path = DATA / f"{name}.npz"
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; set WEFT_DATA to the folder that holds {name}.npz")
    return weft.datasets.open_dataset(path, **options)
