"""Tables with string ids to a graph folder: edges a second, and the most memory, against the limit given."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.graphs import tiny
from benchmarks.measure import Study

RATE = 1_000_000
MEMORY = 2 * 2**30
ROUNDS = 3


def sizes() -> tuple[int, int]:
    """Return the numbers of nodes and edges."""
    return (20_000, 100_000) if tiny() else (2_000_000, 10_000_000)


def write_tables(folder: Path) -> None:
    """Write people and whom they know, by names, as Parquet and as CSV; ends are uniform, the worst case."""
    import duckdb

    nodes, edges = sizes()
    named = f"'user-' || lpad((%s %% {nodes})::VARCHAR, 8, '0')"
    columns = f"{named % '(i * 7919)'} AS id, (i % 7)::INT AS y, random()::FLOAT AS f"
    people = f"SELECT {columns} FROM range({nodes}) t(i)"
    ends = f"{named % 'hash(i)'} AS src, {named % 'hash(i + 1000000007)'} AS dst"
    knows = f"SELECT {ends} FROM range({edges}) t(i)"
    with duckdb.connect() as database:
        for name, query in (("people", people), ("knows", knows)):
            database.execute(f"CREATE TABLE {name} AS {query}")
            database.execute(f"COPY {name} TO '{folder}/{name}.parquet' (FORMAT parquet)")
            database.execute(f"COPY {name} TO '{folder}/{name}.csv' (FORMAT csv, HEADER)")


def run_once(folder: Path, *tables: str) -> dict[str, Any]:
    """Return the result of one ingest in a process of its own, with the most memory that it took."""
    command = [sys.executable, "-m", "weft", "ingest", *tables, "--out", str(folder / "graph"), "--overwrite"]
    command += ["--memory", str(MEMORY), "--json"]
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}")
        output.seek(0)
        used = {"peak": usage.ru_maxrss * 1024, "processor": usage.ru_utime + usage.ru_stime}
        return {**json.loads(output.read()), **used}


def rows() -> Iterator[str]:
    """Give a row for each kind of table."""
    nodes, edges = sizes()
    yield (
        f"| {nodes:,} nodes, {edges:,} edges | seconds | edges/s | required | processor seconds "
        "| peak memory | limit |"
    )
    yield "|---|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory(prefix="weft-ingest-") as held:
        folder = Path(held)
        # By a process of its own: the peak of a child begins with that of its parent.
        code = f"from benchmarks.cases.ingest import *; write_tables(Path({held!r}))"
        subprocess.run([sys.executable, "-c", code], check=True)
        for told, form, both, rate in (
            ("Parquet, nodes and edges", "parquet", True, f"≥ {RATE:,}"),
            ("Parquet, edges alone", "parquet", False, ""),
            ("CSV, nodes and edges", "csv", True, "stated"),
        ):
            tables = [f"edges={folder}/knows.{form}"] + [f"nodes={folder}/people.{form}"] * both
            runs = [run_once(folder, *tables) for _ in range(ROUNDS)]
            assert all(run["num_edges"] == edges for run in runs)
            best = sorted(run["seconds"] for run in runs)[ROUNDS // 2]
            peak = max(run["peak"] for run in runs)
            spent = sorted(run["processor"] for run in runs)[ROUNDS // 2]
            yield (
                f"| {told} | {best:.1f} ({min(run['seconds'] for run in runs):.1f}–"
                f"{max(run['seconds'] for run in runs):.1f}) | {edges / best:,.0f} | {rate} "
                f"| {spent:.1f} | {peak / 2**30:.2f} GiB | {MEMORY / 2**30:g} GiB |"
            )


CASES = [
    Study(
        "ingest",
        "weft ingest: tables with string ids to a graph folder",
        rows,
        note="Median of three runs, each a process of its own; seconds from reading to renaming. "
        "Processor seconds are those of all threads. Peak memory is the resident size of the whole process.",
    )
]
