"""Damaged files of every format: read, or refused in one line; nothing else, whatever the damage."""

import hashlib
import io
import json
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import foreign_folders
import foreign_forms
import foreign_notes
import pytest
import torch
from mutated import files_of, mutations
from torch import nn

import weft
from weft.cli.main import main
from weft.config import read_recipe
from weft.datasets import open_dataset
from weft.errors import WeftError
from weft.format import _manifest_checksum as manifest_checksum
from weft.graph.parts.partition import _digest as partition_digest
from weft.graph.parts.partition import read_partition, read_shard
from weft.partitioners import partition
from weft.pipeline.infer.requests import read_nodes, read_pairs
from weft.plan.cluster import read_cluster
from weft.reading.damage import reading
from weft.stores.mmap import MmapStore
from weft.strategies.asynchronous.order import Order, file_of
from weft.strategies.records.record_loader import RecordFiles
from weft.train.resolve import resolve
from weft.train.saved.checkpoint import Checkpoints, assign_weights, restore_optimizer
from weft.train.saved.prices import read_prices


def read_parts(path: Path) -> None:
    for part in range(min(read_partition(path).num_parts, 4)):
        read_shard(path, part)


def read_records(path: Path) -> None:
    files = RecordFiles.open(path)
    files.check_kind()
    files.range_of("train", 0, 2)
    for part, size in enumerate(files.sizes[:4]):
        files.read(part, 0, size)
    files.known(0, sum(files.sizes))


def resume(path: Path) -> None:
    saved = Checkpoints(path).load()
    if saved is None:
        return
    model = nn.Linear(3, 2)
    with reading(saved.folder):
        assign_weights(model, saved.tensors["model"], where="checkpoint")
        optimizer = torch.optim.Adam(model.parameters())
        restore_optimizer(optimizer, saved.tensors["optimizer"], saved.state["optimizer"])


def command(*words: str | Path) -> None:
    """Run a command of weft: it ends well, or by one line."""
    assert main([str(word) for word in words]) in (0, 2)


def read_run(path: Path) -> None:
    command("report", path)
    command("infer", path, "--out", path.parent / "predictions")
    shutil.rmtree(path.parent / "predictions", ignore_errors=True)
    command("train", "--resume", "--out", path, "--set", "train.epochs=3", "--set", "model.hidden=2")


def read_told_run(path: Path) -> None:
    command("report", path)
    # Rates of the run's own: damaged ones would be measured anew, for minutes.
    with tempfile.TemporaryDirectory() as folder:
        rates = foreign_notes.measured(Path(folder))
        with foreign_notes.cache_at(rates):
            command("plan", "--learn", path)


def read_bucket_run(path: Path) -> None:
    command("infer", path, "--nearest", "2", "--out", path.parent / "predictions")
    shutil.rmtree(path.parent / "predictions", ignore_errors=True)
    command("train", "--resume", "--out", path, "--set", "train.epochs=3")


def read_asked_ids(path: Path) -> None:
    graph = foreign_folders.small_graph()
    for end in ("parquet", "csv"):
        read_nodes(graph, path / f"ids.{end}")
        read_pairs(graph, path / f"pairs.{end}", torch.ones(1, dtype=torch.bool))


def flatten_on(path: Path) -> None:
    command("flatten", path / "g", "--fanout=3,2", "--out", path / "r")


def ingested(path: Path, *words: str | Path) -> None:
    command("ingest", *words, "--out", path.parent / "graph", "--memory", "200MB")
    shutil.rmtree(path.parent / "graph", ignore_errors=True)


def read_recipe_file(path: Path) -> None:
    resolved = resolve(read_recipe(path))
    resolved.make_task(resolved.open())


def replay(path: Path) -> None:
    held = Order(file_of(path, 0), foreign_folders.HEAD)
    held.version(0, 0)
    held.read(0, 0, 0)


def read_store(path: Path) -> None:
    held = MmapStore(path)
    held.gather(torch.arange(len(held.values)))


READERS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Any]]] = {
    "npz": (foreign_folders.npz, open_dataset),
    "folder": (foreign_folders.folder, weft.Graph.load),
    "shards": (foreign_folders.shards, read_parts),
    "records": (foreign_folders.records, read_records),
    "checkpoint": (foreign_folders.checkpoint, resume),
    "saint": (foreign_folders.saint, lambda path: open_dataset(path, name="saint")),
    "ogb": (foreign_folders.ogb, lambda path: open_dataset(path, name="ogb")),
    "planetoid": (foreign_folders.planetoid, lambda path: open_dataset(path, name="planetoid")),
    "recipe": (foreign_folders.recipe, read_recipe_file),
    "cluster": (foreign_folders.cluster, read_cluster),
    "run": (foreign_folders.run, read_run),
    "tables": (foreign_folders.tables, lambda path: ingested(path, "--schema", path / "schema.toml")),
    "triples": (foreign_folders.triples, lambda path: ingested(path, f"triples={path}")),
    "dgl": (
        foreign_folders.dgl,
        lambda path: partition(foreign_folders.small_graph(), 2, name="dgl", path=path),
    ),
    "store": (foreign_folders.store, read_store),
    "order": (foreign_folders.order, replay),
    "machine": (foreign_notes.measured, foreign_notes.read_measured),
    "prices": (foreign_folders.cluster, read_prices),
    "task files": (foreign_notes.task_files, foreign_notes.read_task_files),
    "known links": (foreign_notes.known_links, foreign_notes.read_known_links),
    "dealt parts": (foreign_notes.dealt_parts, foreign_notes.read_dealt_parts),
    "frame": (foreign_notes.frame, foreign_notes.read_frame),
    "typed npz": (foreign_forms.typed_npz, open_dataset),
    "named npz": (foreign_forms.named_npz, open_dataset),
    "triples npz": (foreign_forms.triples_npz, open_dataset),
    "typed folder": (foreign_forms.typed_folder, weft.Graph.load),
    "temporal folder": (foreign_forms.temporal_folder, weft.Graph.load),
    "sparse folder": (foreign_forms.sparse_folder, weft.Graph.load),
    "vertex cut": (foreign_forms.vertex_cut, read_parts),
    "grid": (foreign_forms.grid, read_parts),
    "self-reliant parts": (foreign_forms.self_reliant, read_parts),
    "typed parts": (foreign_forms.typed_parts, read_parts),
    "checkpoint by part": (foreign_forms.kept_by_workers, foreign_forms.read_kept_by_workers),
    "learned rows": (foreign_forms.learned_run, foreign_forms.read_learned_run),
    "span": (foreign_notes.span, lambda path: command("scale", path, "2")),
    "told run": (foreign_notes.told_run, read_told_run),
    "bucket run": (foreign_notes.bucket_run, read_bucket_run),
    "flattened halfway": (foreign_notes.flattened_halfway, flatten_on),
    "asked ids": (foreign_notes.asked_ids, read_asked_ids),
    "parquet": (
        foreign_notes.parquet_tables,
        lambda path: ingested(path, f"nodes={path / 'people.parquet'}", f"edges={path / 'knows.parquet'}"),
    ),
}
SLOW = {"triples": 3}
SLOW |= dict.fromkeys(("typed folder", "temporal folder", "sparse folder", "typed npz", "named npz"), 1)
SLOW |= dict.fromkeys(("typed parts", "vertex cut", "grid", "self-reliant parts"), 1)
SLOW |= dict.fromkeys(("run", "tables", "told run", "bucket run", "flattened halfway", "parquet"), 1)
SLOW |= {"learned rows": 1}
"""Of these, fewer forms a file: they train, start an engine, or have many files."""
LONG = ("learned rows",)
"""Of these, none in the short test and fewer seeds in the long one: a run is continued for each form."""


def damaged(file: Path, seed: int, count: int) -> Iterator[bytes]:
    """Give damaged forms of a file, and of archives and manifests such as say that they are right."""
    content = file.read_bytes()
    yield from mutations(content, seed, count)
    if zipfile.is_zipfile(file):
        yield from damaged_members(content, seed, 2 * count)
    if file.suffix == ".json":
        for form in mutations(content, seed + 1, 3 * count):
            yield sealed(form)


def damaged_members(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    for name, held in members.items():
        for form in mutations(held, seed, count):
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w") as made:
                for other, data in (members | {name: form}).items():
                    made.writestr(other, data)
            yield out.getvalue()


def sealed(content: bytes) -> bytes:
    """Return odd JSON with the checksum that belongs to it."""
    try:
        value = json.loads(content)
    except ValueError:
        return content
    if isinstance(value, dict) and "checksum" in value:
        value["checksum"] = manifest_checksum(value)
    elif isinstance(value, dict) and "sha256" in value:
        value.pop("sha256")
        value["sha256"] = partition_digest(value)
    return json.dumps(value).encode()


def resealed(folder: Path, file: Path) -> None:
    """Let the manifest beside a damaged file say that the damage is what it should hold."""
    for name in ("manifest.json", "records.json"):
        manifest = file.parent / name
        if manifest.is_file() and manifest != file:
            value = json.loads(manifest.read_bytes())
            for entry in [*value["arrays"].values(), *value["files"].values()]:
                if entry["file"] == file.name:
                    data = file.read_bytes()
                    entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            value["checksum"] = manifest_checksum(value)
            manifest.write_bytes(json.dumps(value).encode())
    if file.parent.name.startswith("ranks-"):
        resealed_rank(file, file.parents[1] / file.parent.name.replace("ranks", "epoch", 1) / "manifest.json")


def resealed_rank(file: Path, manifest: Path) -> None:
    """Let a checkpoint say that what a worker kept with it should be as it is."""
    value = json.loads(manifest.read_bytes())
    for entry in value["meta"]["state"]["ranks"]:
        if entry["file"].endswith(file.name):
            entry["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    value["checksum"] = manifest_checksum(value)
    manifest.write_bytes(json.dumps(value).encode())


def tried(name: str, tmp_path: Path, count: int, seed: int = 0) -> int:
    """Damage every file of a format in many ways, read each, and return how many were tried."""
    make, read = READERS[name]
    (tmp_path / "whole").mkdir()
    whole = make(tmp_path / "whole")
    read(whole)
    done = 0
    copy = tmp_path / "copy"
    for place, file in enumerate(files_of(whole)):
        for number, content in enumerate(damaged(file, seed + place, count)):
            path = copy.with_suffix(whole.suffix)
            shutil.copytree(whole, path) if whole.is_dir() else shutil.copy(whole, path)
            target = path / file.relative_to(whole) if whole.is_dir() else path
            target.write_bytes(content)
            if number % 2:
                resealed(path, target)
            read_or_refuse(read, path, (name, str(file.relative_to(tmp_path)), seed + place, number))
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            done += 1
    return done


def read_or_refuse(read: Callable[[Path], Any], path: Path, which: tuple[Any, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read(path)
        except Exception as error:
            if not isinstance(error, WeftError) or "\n" in str(error):
                raise AssertionError(f"{which}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("name", [name for name in READERS if name not in LONG])
def test_damage_is_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    count = SLOW.get(name, 4)
    assert tried(name, tmp_path, count) >= count


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_much_damage_is_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    for seed in range(1 if name in LONG else 10):
        (tmp_path / str(seed)).mkdir()
        assert tried(name, tmp_path / str(seed), 6 * SLOW.get(name, 5), seed=100 * seed) >= 12
