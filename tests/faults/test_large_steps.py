"""The steps from tables to predictions, each killed in its midst and started again: all ends the same."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import write_parquet

NODES, EDGES, WIDTH = 20_000, 400_000, 32


def weft(*command: object) -> None:
    """Run a command to its end."""
    run = [sys.executable, "-m", "weft", *map(str, command)]
    subprocess.run(run, check=True, timeout=300, capture_output=True)


def killed(there: Callable[[], bool], *command: object) -> None:
    """Start a command and kill it once something is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 300
    while process.poll() is None and not there() and time.monotonic() < end:
        time.sleep(0.001)
    seen = there()
    process.kill()
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
    assert seen


def write_tables(folder: Path) -> tuple[str, str]:
    draws = np.random.default_rng(0)
    y = draws.integers(0, 4, NODES)
    x = (draws.standard_normal((NODES, WIDTH)) + np.eye(4, WIDTH)[y]).astype(np.float16)
    columns: dict[str, Any] = {"id": np.arange(NODES), "y": y}
    columns["x"] = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), WIDTH)
    columns["split"] = np.array(["train", "val", "test", "none"])[np.minimum(draws.integers(0, 40, NODES), 3)]
    columns["split"] = pa.array(columns["split"], mask=columns["split"] == "none")
    ends = draws.integers(0, NODES, (2, EDGES))
    nodes = write_parquet(folder / "nodes.parquet", columns)
    edges = write_parquet(folder / "edges.parquet", {"src": ends[0], "dst": ends[1]})
    return f"nodes={nodes}", f"edges={edges}"


@pytest.mark.slow
def test_every_step_killed_in_its_midst_and_started_again_ends_the_same(tmp_path: Path) -> None:
    tables = write_tables(tmp_path)
    made: dict[str, list[Any]] = {"graph": [], "parts": [], "weights": [], "predictions": []}
    for kind in ("whole", "torn"):
        folder = tmp_path / kind
        folder.mkdir()

        def there(pattern: str, folder: Path = folder) -> Callable[[], bool]:
            return lambda: any(folder.glob(pattern))

        graph, parts, run, out = (folder / name for name in ("graph", "parts", "run", "out"))
        ingest = ("ingest", *tables, "--out", graph, "--memory", "1GiB")
        cut = (
            "partition",
            graph,
            "--parts",
            16,
            "--name",
            "ldg",
            "--set",
            "data.symmetrise=false",
            "--out",
            parts,
        )
        told = ["model.name=sage", "strategy.name=sampled", "strategy.fanout=[5, 5]", "train.epochs=4"]
        told += ["strategy.evaluate=[5, 5]", "data.symmetrise=false", f"data.path={graph}"]
        train = ("train", *(part for one in told for part in ("--set", one)), "--out", run)
        infer = ("infer", run, "--out", out)
        if kind == "torn":
            killed(there(".graph.*/indices.npy"), *ingest)
        weft(*ingest)
        if kind == "torn":
            killed(there(".parts.*/part-00002"), *cut)
        weft(*cut)
        if kind == "torn":
            killed(there("run/checkpoint/latest"), *train)
            weft("train", "--resume", "--out", run)
        else:
            weft(*train)
        if kind == "torn":
            killed(there(".out*"), *infer)
        weft(*infer)
        made["graph"].append(json.loads((graph / "manifest.json").read_text())["arrays"])
        made["parts"].append(json.loads((parts / "partition.json").read_text())["sha256"])
        made["weights"].append((run / "model.safetensors").read_bytes())
        made["predictions"].append(pq.read_table(out / "predictions.parquet"))
        assert sorted(path.name for path in folder.iterdir()) == ["graph", "out", "parts", "run"]
    for what, (whole, torn) in made.items():
        assert whole == torn, what
