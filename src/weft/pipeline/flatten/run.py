"""GraphFlat: the sampled k-hop neighbourhood of every target as one record, by joins, on any engine.

Records are what `weft.samplers.NeighborSampler` draws in epoch 0 (`hops`), so a step that runs again gives
the same rows. Targets are done in parts, a file a part. Files lie in a folder beside `out` until all are
there: an interrupted run continues from them, on whichever engine, and `out` appears whole or not at all.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from weft import format
from weft.errors import FormatError, GraphError, InputError, RecipeError
from weft.pipeline.engines.base import Engine, open_engine
from weft.pipeline.flatten.assemble import ABOUT, SUMMARY, Assembler, describe, facts, part_name
from weft.pipeline.flatten.folder import GraphFolder, open_graph
from weft.pipeline.flatten.hops import HopPlan, Hops
from weft.sizes import shown

# Edges of the records of a file, by expectation.
PART_EDGES = 1_000_000
# Targets that are flattened to see how large records get.
PROBE = 100
LIMIT = 10 * 2**30
HUB = 10_000
PLAN = "plan.json"
Say = Callable[[str], None]


def flatten(
    graph: str | Path,
    out: str | Path,
    *,
    fanout: Sequence[int] = (15, 10),
    targets: str = "train",
    seed: int = 0,
    weight: str | None = None,
    temporal: bool = False,
    hub: int = HUB,
    features: Literal["reference", "value"] = "reference",
    engine: str = "duckdb",
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    memory: str | int | None = None,
    overwrite: bool = False,
    limit: int | None = LIMIT,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Write the records of all targets as Parquet files, and return how many there are and how large.

    `targets` is a split (train, val, test), several with commas between, "labelled" or "all". `weight` names
    edge data by which edges are drawn; `temporal` lets a target see only edges that are not later than its
    own `time`. Nodes of more than `hub` edges, or that more targets reach, are spread over several tasks; 0:
    none. More than `limit` bytes, by an estimate of some targets, are refused; None: any. `master` and
    `settings` are those of the engine "spark".
    """
    folder = open_graph(graph)
    if features not in ("reference", "value"):
        raise RecipeError(f"features: expected 'reference' or 'value', got {features!r}")
    plan = HopPlan(_fanout(fanout), int(seed), weight, temporal, _count("hub", hub))
    splits = _splits(folder, targets)
    chosen = _ChosenTargets(folder, np.concatenate(list(splits.values())), plan)
    out = format.as_path(out).absolute()
    work = out.parent / f".{out.name}.work"
    with format.new_directory(out, overwrite, marker=format.RECORDS) as partial, _working(work):
        with open_engine(engine, work / "engine", memory=memory, master=master, settings=settings) as runner:
            say(f"{folder.meta['num_edges']:,} edges go to {engine}")
            job = _Job(runner, chosen, Hops(runner, folder, plan), work, features == "value", say)
            expected = job.estimate()
            _tell(expected, len(chosen.nodes), limit, say)
            parts = job.write(expected)
        for part in parts:
            os.replace(work / part["file"], partial / part["file"])
        made: dict[str, Any] = {
            "fanout": list(plan.fanout), "seed": plan.seed, "targets": ",".join(splits), "features": features,
            "weight": weight, "temporal": temporal, "node_types": folder.meta["node_types"],
            "node_offsets": folder.meta["node_offsets"], "edge_types": folder.meta["edge_types"],
            "parts": parts, "graph": str(Path(graph).absolute()), "mark": folder.mark,
            "num_edges": folder.meta["num_edges"],
            "splits": {name: len(held) for name, held in splits.items()},
        }  # fmt: skip
        if features == "value":
            made |= facts(folder)
        files = [part["file"] for part in parts]
        format.seal_directory(partial, made, files=files, manifest=format.RECORDS)
    total = {key: sum(part[key] for part in parts) for key in ("records", "nodes", "edges", "bytes")}
    total["replication"] = total["nodes"] / max(folder.meta["num_nodes"], 1)
    return {"out": str(out), **total, "expected": expected, "parts": len(parts)}


def _splits(folder: GraphFolder, targets: str) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each split that is asked for; a node has one record, so two may not share any."""
    splits = {split: folder.targets(split) for split in (word.strip() for word in targets.split(","))}
    for one, two in combinations(splits, 2):
        shared = len(np.intersect1d(splits[one], splits[two], assume_unique=True))
        if shared:
            raise RecipeError(
                f"targets: {shared:,} nodes are in {one!r} and in {two!r}, and a node has one record; "
                "leave one of them out"
            )
    return splits


def _fanout(fanout: Sequence[int]) -> tuple[int, ...]:
    if not fanout or any(isinstance(count, bool) or count != int(count) or count < -1 for count in fanout):
        raise RecipeError(f"fanout: expected numbers of edges, -1 for all, such as 15,10; got {list(fanout)}")
    return tuple(map(int, fanout))


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or value != int(value) or value < 0:
        raise RecipeError(f"{name}: expected a number of at least 0, got {value!r}")
    return int(value)


def _tell(expected: dict[str, float], count: int, limit: int | None, say: Say) -> None:
    say(
        f"{count:,} records of about {expected['nodes']:,.0f} nodes and {expected['edges']:,.0f} "
        f"edges: {shown(int(expected['bytes']))}, each node {expected['replication']:.1f} times"
    )
    if limit is not None and expected["bytes"] > limit:
        raise InputError(
            f"records would take about {shown(int(expected['bytes']))}, more than {shown(limit)}; "
            "give --yes to write them, or a smaller fanout"
        )


@dataclass(frozen=True, eq=False)
class _ChosenTargets:
    """The targets, in the order of records, and how their neighbourhoods are drawn."""

    folder: GraphFolder
    nodes: NDArray[np.int64]
    plan: HopPlan

    def __post_init__(self) -> None:
        if not len(self.nodes):
            raise GraphError("targets: no node is one of them")
        if self.plan.weight is not None:
            self.folder.edge_data(self.plan.weight)
        if self.plan.temporal:
            self.folder.edge_data("time")
            self._check_times()
            late = np.flatnonzero(~np.isfinite(self.moments))
            if len(late):  # compared with it no edge is later
                raise GraphError(f"temporal: the time of node {self.nodes[late[0]]} is not a finite number")

    def _check_times(self) -> None:
        timed = self.folder.kinds_with("time")
        if not timed:
            raise GraphError("temporal: the nodes have no time; a target sees the edges until its own")
        without = ~np.any([self.folder.of_kind(kind, self.nodes) for kind in timed], axis=0)
        if without.any():
            raise GraphError(
                f"temporal: node {self.nodes[without.argmax()]} is a target without a time, which nodes of "
                f"{', '.join(timed)} have; give the others one, or choose targets that have it"
            )

    @property
    def moments(self) -> Any:
        """The times of the targets, where they matter."""
        return self.folder.of_nodes("time", self.nodes) if self.plan.temporal else None


@contextlib.contextmanager
def _working(work: Path) -> Iterator[None]:
    """Hold the folder of finished files while records are made.

    A crash leaves it. An error removes it, unless it holds what an interrupted run before this one did.
    """
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FormatError(f"another weft flatten is writing to {work.name[1:-5]}") from None
        shutil.rmtree(work / "engine", ignore_errors=True)
        continued = (work / PLAN).exists()
        try:
            yield
        except Exception:
            shutil.rmtree(work / "engine" if continued else work, ignore_errors=True)
            raise
        shutil.rmtree(work, ignore_errors=True)


@dataclass
class _Job:
    """Makes the records of all targets, a part at a time or all at once, as the engine likes."""

    engine: Engine
    chosen: _ChosenTargets
    hops: Hops
    work: Path
    values: bool
    say: Say

    def estimate(self) -> dict[str, float]:
        """Return nodes and edges a record, bytes in all and copies a node, as a few targets have them."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        nodes = self.chosen.nodes
        some = np.arange(len(nodes))[:: max(1, len(nodes) // PROBE)][:PROBE]
        rows = self._rows(some, size=len(some), numbers=np.arange(len(some)))
        found = pa.Table.from_batches(self.engine.batches(rows))
        about = describe(self.chosen.folder, nodes[some])
        table = self._assembler(len(some)).records(found, about, first=0)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        held = json.loads(table.schema.metadata[SUMMARY])
        each = {key: held[key] / len(some) for key in ("nodes", "edges")}
        each["bytes"] = sink.tell() / len(some)
        copies = each["nodes"] * len(nodes) / max(self.chosen.folder.meta["num_nodes"], 1)
        return {**each, "bytes": each["bytes"] * len(nodes), "replication": copies}

    def write(self, expected: dict[str, float]) -> list[dict[str, Any]]:
        """Write the files that are not there yet, and return what is in each."""
        count = max(1, int(PART_EDGES // max(expected["edges"], 1.0)))
        total = -(-len(self.chosen.nodes) // count)
        self._continue_or_start(count)
        done = {part for part in range(total) if (self.work / part_name(part)).exists()}
        if done:
            self.say(f"continuing with {len(done):,} of {total:,} files that are there already")
        rows = count * (expected["nodes"] + expected["edges"])
        at_once = int(max(1, min(total, self.engine.capacity // max(rows, 1))))
        left = [part for part in range(total) if part not in done]
        for start in range(0, len(left), at_once):
            self._write_parts(left[start : start + at_once], count, total)
            self.say(f"{total - len(left) + min(start + at_once, len(left)):,} of {total:,} files")
        return [_described(self.work / part_name(part)) for part in range(total)]

    def _write_parts(self, parts: list[int], count: int, total: int) -> None:
        import pyarrow as pa

        starts = [np.arange(part * count, min((part + 1) * count, len(self.chosen.nodes))) for part in parts]
        rows = self._rows(np.concatenate(starts), size=count)
        schema = pa.schema([("part", pa.int64()), ("records", pa.int64())])
        self.engine.groups("written", rows, "part", total, self._assembler(count), schema)

    def _rows(self, places: NDArray[np.int64], *, size: int, numbers: Any = None) -> str:
        nodes, moments = self.chosen.nodes[places], self.chosen.moments
        numbers = places if numbers is None else numbers
        return self.hops.rows(nodes, numbers, None if moments is None else moments[places], size=size)

    def _assembler(self, count: int) -> Assembler:
        plan, scaled = self.chosen.plan, self.hops.scaled
        return Assembler(
            self.chosen.folder, count, str(self.work), self.values, scaled, plan.weight, plan.temporal
        )

    def _continue_or_start(self, count: int) -> None:
        """Keep the files of a run of the same graph and settings; else drop them and begin anew."""
        import pyarrow.parquet as pq

        held = {"graph": self.chosen.folder.mark, "values": self.values, "size": count}
        held |= {key: value for key, value in asdict(self.chosen.plan).items() if key != "hub"}
        held["targets"] = hashlib.sha256(self.chosen.nodes.tobytes()).hexdigest()
        mark = json.dumps(held)
        plan = self.work / PLAN
        if plan.exists() and plan.read_text() == mark:
            return
        plan.unlink(missing_ok=True)
        for file in self.work.glob("part-*.parquet"):
            file.unlink()
        about = describe(self.chosen.folder, self.chosen.nodes)
        pq.write_table(about, self.work / ABOUT, row_group_size=count)
        format.atomic_write(plan, mark.encode())


def _described(path: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    held = json.loads(pq.read_schema(path).metadata[SUMMARY])
    return {"file": path.name, **held, "bytes": path.stat().st_size}
