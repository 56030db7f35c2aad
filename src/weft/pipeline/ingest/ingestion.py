"""Tables to a graph folder, out of core: `weft ingest`.

Ids are joined and edges sorted by the engine, within its memory; columns pass through as Arrow batches. The
folder appears whole or not at all. The tables of rows lie in a folder beside it until the end, so that an
ingest that was killed continues where it was.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft import format
from weft.meaning import REPORT
from weft.pipeline.engines.base import Engine, engines, memory_limit, open_engine, text
from weft.pipeline.ingest.edge_targets import EdgeTargetArrays
from weft.pipeline.ingest.intake import Intake, Reader
from weft.pipeline.ingest.problems import Problems
from weft.pipeline.ingest.targets import TargetArrays
from weft.pipeline.schema import EdgeType, Schema
from weft.placing import work_folder

# Bytes that the process takes beside DuckDB: Python, Arrow batches, what the allocator keeps.
BESIDE = 256 * 2**20
_FILL = {"weight": 1, "label": -1, "split": -1}


def ingest(
    schema: Schema,
    out: str | Path,
    *,
    fixes: Iterable[str] = (),
    memory: str | int | None = None,
    engine: str = "duckdb",
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda _: None,
    watch: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Write the graph of the tables as a folder for `weft.load`, and return what came of it.

    Any error in the tables is raised in one line and leaves nothing behind, unless one of `fixes` takes
    care of it. `memory` is the most that the process takes, of less than 1 GiB the most that DuckDB does;
    half of what is free where it is not given. `engine` may be "spark", for Parquet files: `master` and
    `settings` are Spark's, and `memory` that of each of its processes. `say` is told of each stage,
    `watch` which share of a long step is done.
    """
    out = format.as_path(out)
    work = out.parent / f".{out.name}.work"
    start = time.perf_counter()
    problems = Problems(frozenset(fixes))
    with format.new_directory(out, overwrite) as partial, _working(work):
        with _open_engine(engine, work, memory, watch, master=master, settings=settings) as opened:
            intake = Intake(schema, opened, problems, say)
            intake.survey()
            problems.check()
            _continue_or_start(intake)
            intake.load(strict=True)
            problems.check()
            report = _Writer(intake, partial, work, watch or (lambda _: None)).write()
            problems.check()
        (partial / REPORT).write_text(json.dumps(report["told"]))
        format.seal_directory(
            partial, report["meta"], arrays=report["arrays"], files=[*report["files"], REPORT]
        )
    return _summary(intake, report, out, time.perf_counter() - start)


@contextlib.contextmanager
def _working(work: Path) -> Iterator[None]:
    """Remove the folder of tables at the end, also after an error; after a kill or a stop it is kept."""
    work_folder(work)
    try:
        yield
    except Exception:
        shutil.rmtree(work, ignore_errors=True)
        raise
    shutil.rmtree(work, ignore_errors=True)


def _open_engine(
    engine: str, work: Path, memory: str | int | None, watch: Callable[[float], None] | None, **spark: Any
) -> Engine:
    """Return the engine, with tables that are still there after a crash where it can keep them."""
    if engines[engine].keeps and not any(spark.values()):
        kind: Any = engines[engine]
        made: Engine = kind(work, keep=True, memory=_engine_share(memory_limit(memory)), watch=watch)
        return made
    return open_engine(engine, work, memory=memory, **spark)


def _engine_share(limit: int) -> int:
    """Return what is left of a limit for an engine beside Python and Arrow; all of it where it is small."""
    return limit - BESIDE if limit >= 4 * BESIDE else limit


def _continue_or_start(intake: Intake) -> None:
    """Keep the tables of an ingest that was interrupted, if it was of the same files; else drop them."""
    if not intake.engine.keeps:
        return  # it has none from before
    sources = [*intake.node_sources.values(), *intake.edge_sources.values()]
    stats = [(str(file.path), os.stat(file.path)) for source in sources for file in source.files]
    stamp = {
        "schema": intake.schema.to_toml(),
        "fixes": sorted(intake.problems.fixes),
        "files": [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats],
    }
    mark = hashlib.sha256(json.dumps(stamp).encode()).hexdigest()
    engine = intake.engine
    if engine.has("plan") and engine.rows("SELECT mark FROM plan") == [(mark,)]:
        intake.say("continuing an interrupted ingest")
        return
    engine.drop(*engine.kept())
    engine.step("plan", f"SELECT {text(mark)} AS mark")


@dataclass
class _Writer:
    """Writes the arrays of a graph into a folder."""

    intake: Intake
    folder: Path
    work: Path
    watch: Callable[[float], None]
    arrays: dict[str, dict[str, Any]] = field(default_factory=dict)
    classes: dict[str, list[str]] = field(default_factory=dict)
    edge_classes: dict[str, list[str]] = field(default_factory=dict)
    features: dict[str, list[str]] = field(default_factory=dict)
    edge_features: dict[str, list[str]] = field(default_factory=dict)

    def write(self) -> dict[str, Any]:
        """Write everything but the manifest, and return what goes into it."""
        intake = self.intake
        kinds = list(intake.schema.nodes)
        counts = [intake.nodes[kind].count for kind in kinds]
        offsets = [0, *np.cumsum(counts, dtype=np.int64).tolist()]
        ids = {}
        for number, kind in enumerate(kinds):
            ids[kind] = f"ids_{number}.parquet"
            query = f'SELECT id FROM {intake.nodes[kind].table} ORDER BY "row"'
            intake.engine.write(query, self.folder / ids[kind])
        node_data = [entry for number, kind in enumerate(kinds) for entry in self._nodes(number, kind)]
        edge_data, columns = self._edge_data()
        intake.problems.check()
        num_edges, repeated, loops = self._edges(dict(zip(kinds, offsets)), offsets[-1], edge_data)
        meta = {
            "kind": "graph",
            "num_nodes": offsets[-1],
            "num_edges": num_edges,
            "node_types": kinds,
            "node_offsets": offsets,
            "edge_types": self._relations() or [(kinds[0], "edge", kinds[0])],
            "edge_columns": columns,
            "target_type": None,
            "node_data": node_data,
            "edge_data": [
                {"name": name, "array": f"edge_{index}", "dtype": array.dtype.name}
                for index, (name, array) in enumerate(edge_data.items())
            ],
            "node_ids": ids,
        }
        report: dict[str, Any] = {
            "classes": self.classes,
            "edge_classes": self.edge_classes,
            "features": self.features,
            "edge_features": self.edge_features,
            "schema": intake.schema.to_toml(),
        }
        report |= {"repeated_edges": repeated, "self_loops": loops}
        return {"meta": meta, "arrays": self.arrays, "files": list(ids.values()), "told": report}

    def _relations(self) -> list[EdgeType]:
        """Return the relations of all tables, in their order."""
        return [kind for edges in self.intake.edges.values() for kind in edges.kinds]

    def _nodes(self, number: int, kind: str) -> list[dict[str, Any]]:
        """Write the columns of a node type, and return the lines of the manifest that find them."""
        intake = self.intake
        readers = intake.node_readers(kind)
        intake.problems.check()
        if not readers:
            return []
        nodes = intake.nodes[kind]
        names = [name for reader in readers for name in reader.outputs]
        files = {name: f"node_{number}_{index}" for index, name in enumerate(names)}
        entries = self._stream(self.folder, files, readers, kind, nodes.count, nodes.keep)
        chosen: dict[str, int] = {}
        for reader in readers:
            if isinstance(reader, TargetArrays):
                chosen = {f"{part}_mask": count for part, count in reader.chosen.items()}
                self.classes |= {kind: reader.classes} if reader.classes else {}
            elif hasattr(reader, "names"):
                self.features[kind] = reader.names()
        for name in [name for name in names if chosen.get(name) == 0]:
            del entries[name]  # a split that nobody is in is no split
            (self.folder / f"{files.pop(name)}.npy").unlink()
        self.arrays |= {files[name]: entry for name, entry in entries.items()}
        intake.say(f"columns of {kind}: {', '.join(files)}")
        return [
            {"type": kind, "name": name, "array": array, "dtype": np.dtype(entries[name]["dtype"]).name}
            for name, array in files.items()
        ]

    def _stream(
        self, folder: Path, files: dict[str, str], readers: list[Reader], kind: Any, count: int, keep: Any
    ) -> dict[str, dict[str, Any]]:
        """Write the arrays that readers make of a table, and return their lines of the manifest."""
        intake = self.intake
        shapes = {name: shape for reader in readers for name, shape in reader.outputs.items()}
        open_files = {
            name: format.ArrayFile(folder / f"{files[name]}.npy", dtype, (count, *tail))
            for name, (dtype, tail) in shapes.items()
        }
        source = intake.node_sources[kind] if isinstance(kind, str) else intake.edge_sources[kind]
        done = 0
        for rows in intake.read(source, readers, keep):
            for name, values in rows.items():
                open_files[name].append(values)
            done += len(values)
            self.watch(done / max(count, 1))
        intake.problems.check()
        return {name: file.close() for name, file in open_files.items()}

    def _edge_data(self) -> tuple[dict[str, "_Joined"], dict[str, list[int | None]]]:
        """Write edge data in the user's order, one file per relation, and return it as if one array."""
        joined: dict[str, _Joined] = {}
        sizes = [edges.count for edges in self.intake.edges.values()]
        for index, (kind, edges) in enumerate(self.intake.edges.items()):
            readers = self.intake.edge_readers(kind)
            self.intake.problems.check()
            if not readers:
                continue
            names = [name for reader in readers for name in reader.outputs]
            files = {name: f"given_{index}_{name}" for name in names}
            self._stream(self.work, files, readers, kind, edges.count, edges.keep)
            for reader in readers:
                if isinstance(reader, EdgeTargetArrays) and reader.classes:
                    self.edge_classes[" ".join(kind)] = reader.classes
                elif hasattr(reader, "names"):
                    self.edge_features[" ".join(kind)] = reader.names()
            for name in names:
                values = np.load(self.work / f"{files[name]}.npy", mmap_mode="r")
                joined.setdefault(name, _Joined(name, sizes)).parts[index] = values
        self._check_labels(joined.get("label"))
        counts = [len(edges.kinds) for edges in self.intake.edges.values()]
        columns = {
            name: [width for width, count in zip(array.widths, counts) for _ in range(count)]
            for name, array in joined.items()
            if array.differs
        }
        return joined, columns

    def _check_labels(self, labels: "_Joined | None") -> None:
        """Refuse classes in one relation and numbers in another: edge data is one array."""
        kinds = {part.dtype.kind for part in labels.parts.values()} if labels is not None else set()
        if len(kinds) > 1:
            message = "some relations have classes and others numbers: give encode for each"
            self.intake.problems.add("error", "label-value", "edges", message)

    def _edges(
        self, first: dict[str, int], num_nodes: int, edge_data: dict[str, "_Joined"]
    ) -> tuple[int, int, int]:
        """Write the edges in canonical order; return how many there are, are repeated, and are loops."""
        intake = self.intake
        num_edges = sum(edges.count for edges in intake.edges.values())
        several = len(self._relations()) > 1
        kinds = {"indices": _index(num_nodes), "edge_ids": _index(num_edges)}
        kinds |= {"edge_type": np.dtype(np.int32)} if several else {}
        files = {name: self._file(name, dtype, (num_edges,)) for name, dtype in kinds.items()}
        data = {
            name: self._file(f"edge_{place}", array.dtype, (num_edges, *array.tail))
            for place, (name, array) in enumerate(edge_data.items())
        }
        degrees, repeated, loops = np.zeros(num_nodes + 1, dtype=np.int64), 0, 0
        last = (-1, -1, -1)
        for batch in intake.engine.batches(self._ordered(first)) if num_edges else ():
            if not batch.num_rows:
                continue
            dst, kind, src, place = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
            low = int(dst[0])
            degrees[low + 1 : int(dst[-1]) + 2] += np.bincount(dst - low)
            files["indices"].append(src)
            files["edge_ids"].append(place)
            if several:
                files["edge_type"].append(kind)
            for name, array in edge_data.items():
                data[name].append(array[place])
            same = (dst[1:] == dst[:-1]) & (src[1:] == src[:-1]) & (kind[1:] == kind[:-1])
            repeated += int(same.sum()) + ((int(dst[0]), int(kind[0]), int(src[0])) == last)
            last = int(dst[-1]), int(kind[-1]), int(src[-1])
            self.watch(files["indices"].rows / num_edges)
            loops += int((dst == src).sum())
        indptr = self._file("indptr", np.dtype(np.int64), (num_nodes + 1,))
        indptr.append(np.cumsum(degrees))
        for name, file in [*files.items(), ("indptr", indptr)]:
            self.arrays[name] = file.close()
        for place, file in enumerate(data.values()):
            self.arrays[f"edge_{place}"] = file.close()
        return num_edges, repeated, loops

    def _ordered(self, first: dict[str, int]) -> str:
        """Return the query for all edges by destination, relation, source, place in the user's order."""
        parts, start, number = [], 0, 0
        for kind, edges in self.intake.edges.items():
            relation = str(number) if edges.relations is None else f"relation + {number}"
            ends = f"dst + {first[kind[2]]} AS dst, {relation} AS relation, src + {first[kind[0]]} AS src"
            parts.append(f"SELECT {ends}, pos + {start} AS pos FROM {edges.table}")
            start += edges.count
            number += len(edges.kinds)
        return f"SELECT * FROM ({' UNION ALL '.join(parts)}) ORDER BY dst, relation, src, pos"

    def _file(self, name: str, dtype: Any, shape: tuple[int, ...]) -> format.ArrayFile:
        return format.ArrayFile(self.folder / f"{name}.npy", dtype, shape)


class _Joined:
    """Data of the edges of all relations as one array; what a relation lacks is 1 for weights, else 0."""

    def __init__(self, name: str, sizes: list[int]) -> None:
        self.name, self.sizes = name, sizes
        self.parts: dict[int, NDArray[Any]] = {}
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the relations that have it."""
        return np.result_type(*(part.dtype for part in self.parts.values()))

    @property
    def widths(self) -> list[int | None]:
        """Columns of each relation: 0 for one value per edge, None where there is nothing."""
        return [
            None if part is None else (part.shape[1] if part.ndim == 2 else 0)
            for part in (self.parts.get(index) for index in range(len(self.sizes)))
        ]

    @property
    def differs(self) -> bool:
        """Whether relations differ in it."""
        return len(set(self.widths)) > 1

    @property
    def tail(self) -> tuple[int, ...]:
        """The shape of one edge's value."""
        shapes = {part.shape[1:] for part in self.parts.values()}
        return max(shapes)

    def __getitem__(self, places: NDArray[Any]) -> NDArray[Any]:
        if len(self.sizes) == 1:
            return np.asarray(self.parts[0][places])
        fill = np.nan if self.name == "label" and self.dtype.kind == "f" else _FILL.get(self.name, 0)
        found = np.full((len(places), *self.tail), fill, dtype=self.dtype)
        relation = np.searchsorted(self.starts, places, side="right") - 1
        for place, part in self.parts.items():
            rows = np.flatnonzero(relation == place)
            values = part[places[rows] - self.starts[place]]
            if part.ndim == 2:
                found[rows, : part.shape[1]] = values
            else:
                found[rows] = values
        return found


def _index(count: int) -> np.dtype[Any]:
    return np.dtype(np.int32 if count < 2**31 else np.int64)


def _summary(intake: Intake, report: dict[str, Any], out: Path, seconds: float) -> dict[str, Any]:
    meta = report["meta"]
    return {
        "out": str(out),
        "num_nodes": meta["num_nodes"],
        "num_edges": meta["num_edges"],
        "nodes": {kind: nodes.count for kind, nodes in intake.nodes.items()},
        "edges": {".".join(kind): edges.count for kind, edges in intake.edges.items()},
        "relations": len(meta["edge_types"]),
        "features": {kind: len(names) for kind, names in report["told"]["features"].items()},
        "classes": {
            kind: len(names)
            for name in ("classes", "edge_classes")
            for kind, names in report["told"][name].items()
        },
        "repeated_edges": report["told"]["repeated_edges"],
        "self_loops": report["told"]["self_loops"],
        "seconds": seconds,
        "memory_limit_bytes": getattr(intake.engine, "memory", None),
        "problems": [problem.as_json() for problem in intake.problems.found],
        "schema": report["told"]["schema"],
    }
