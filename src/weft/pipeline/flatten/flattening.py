"""GraphFlat: the sampled k-hop neighbourhood of every target as one record, by joins, on any engine.

Records are what `weft.samplers.NeighborSampler` draws in epoch 0 (`hops`), so a step that runs again gives
the same rows. Targets are done in parts, one file per part. Files lie in a folder beside `out` until all are
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
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from weft import format
from weft.errors import FormatError, InputError, RecipeError
from weft.format import MESSAGES
from weft.pipeline.engines.base import Engine, open_engine
from weft.pipeline.flatten.assemble import ABOUT, SUMMARY, Assembler, facts, part_name
from weft.pipeline.flatten.chosen import ChosenTargets, chosen_nodes, chosen_pairs
from weft.pipeline.flatten.folder import GraphFolder, open_graph
from weft.pipeline.flatten.hops import HopPlan, Hops
from weft.placing import work_folder
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
    task: Mapping[str, Any] | None = None,
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
    own `time`. With `task`, a recipe's section, records are of the training pairs of a task of pairs, and
    hold the neighbourhoods of their ends and negatives in the graph of its messages. Nodes of more than `hub`
    edges, or that more targets reach, are spread over several tasks; 0: none. More than `limit` bytes, by an
    estimate of some targets, are refused; None: any. `master` and `settings` are those of the engine "spark".
    """
    folder = open_graph(graph)
    if features not in ("reference", "value"):
        raise RecipeError(f"features: expected 'reference' or 'value', got {features!r}")
    plan = HopPlan(_fanout(fanout), int(seed), weight, temporal, _count("hub", hub))
    if task and targets != "train":
        raise RecipeError(f"targets: records of pairs are of the training pairs, got {targets!r}")
    chosen = None if task else chosen_nodes(folder, targets, plan)
    out = format.as_path(out).absolute()
    work = out.parent / f".{out.name}.work"
    with format.new_directory(out, overwrite, marker=format.RECORDS) as partial, _working(work):
        if chosen is None:
            chosen = chosen_pairs(Path(folder.path), task or {}, plan, work)
        with open_engine(engine, work / "engine", memory=memory, master=master, settings=settings) as runner:
            say(f"{chosen.folder.meta['num_edges']:,} edges go to {engine}")
            job = _Job(runner, chosen, Hops(runner, chosen.folder, plan), work, features == "value", say)
            expected = job.estimate()
            _tell(expected, len(chosen), limit, say)
            parts = job.write(expected)
        for part in parts:
            os.replace(work / part["file"], partial / part["file"])
        made = {**_manifest(folder, chosen, plan, features), "parts": parts}
        if (work / MESSAGES).is_dir():
            os.replace(work / MESSAGES, partial / MESSAGES)
        format.seal_directory(partial, made, files=[part["file"] for part in parts], manifest=format.RECORDS)
    total = {key: sum(part[key] for part in parts) for key in ("records", "nodes", "edges", "bytes")}
    total["replication"] = total["nodes"] / max(folder.meta["num_nodes"], 1)
    return {"out": str(out), **total, "expected": expected, "parts": len(parts)}


def _manifest(folder: GraphFolder, chosen: ChosenTargets, plan: HopPlan, features: str) -> dict[str, Any]:
    """Return what the file of a folder of records says of them, but for the list of parts."""
    meta, source = folder.meta, chosen.folder
    made: dict[str, Any] = {
        "fanout": list(plan.fanout), "seed": plan.seed, "features": features,
        "weight": plan.weight, "temporal": plan.temporal, "node_types": meta["node_types"],
        "node_offsets": meta["node_offsets"], "edge_types": meta["edge_types"],
        "graph": str(Path(folder.path).absolute()), "mark": source.mark,
        "num_edges": source.meta["num_edges"], **chosen.told,
    }  # fmt: skip
    return made | facts(source) if features == "value" else made


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


@contextlib.contextmanager
def _working(work: Path) -> Iterator[None]:
    """Hold the folder of finished files while records are made.

    A crash leaves it. An error removes it, unless it holds what an interrupted run before this one did.
    """
    work_folder(work)
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
    chosen: ChosenTargets
    hops: Hops
    work: Path
    values: bool
    say: Say

    def estimate(self) -> dict[str, float]:
        """Return nodes and edges a record, bytes in all and copies a node, as a few targets have them."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        count = len(self.chosen)
        some = np.arange(count)[:: max(1, count // PROBE)][:PROBE]
        rows = self._rows(some, size=len(some), first=0)
        found = pa.Table.from_batches(self.engine.batches(rows))
        table = self._assembler(len(some)).records(found, self.chosen.about(some), first=0)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        held = json.loads(table.schema.metadata[SUMMARY])
        each = {key: held[key] / len(some) for key in ("nodes", "edges")}
        each["bytes"] = sink.tell() / len(some)
        copies = each["nodes"] * count / max(self.chosen.folder.meta["num_nodes"], 1)
        return {**each, "bytes": each["bytes"] * count, "replication": copies}

    def write(self, expected: dict[str, float]) -> list[dict[str, Any]]:
        """Write the files that are not there yet, and return what is in each."""
        count = max(1, int(PART_EDGES // max(expected["edges"], 1.0)))
        total = -(-len(self.chosen) // count)
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

        starts = [np.arange(part * count, min((part + 1) * count, len(self.chosen))) for part in parts]
        rows = self._rows(np.concatenate(starts), size=count)
        schema = pa.schema([("part", pa.int64()), ("records", pa.int64())])
        self.engine.groups("written", rows, "part", total, self._assembler(count), schema)

    def _rows(self, places: NDArray[np.int64], *, size: int, first: int | None = None) -> str:
        """Return the query of the rows of some records, numbered by place, or one by one from `first` on."""
        nodes, whose = self.chosen.seeds(places)
        numbers, moments = places[whose] if first is None else first + whose, self.chosen.moments
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
        held["of"] = self.chosen.told
        mark = json.dumps(held)
        plan = self.work / PLAN
        if plan.exists() and plan.read_text() == mark:
            return
        plan.unlink(missing_ok=True)
        for file in self.work.glob("part-*.parquet"):
            file.unlink()
        about = self.chosen.about(np.arange(len(self.chosen)))
        pq.write_table(about, self.work / ABOUT, row_group_size=count)
        format.atomic_write(plan, mark.encode())


def _described(path: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    held = json.loads(pq.read_schema(path).metadata[SUMMARY])
    return {"file": path.name, **held, "bytes": path.stat().st_size}
