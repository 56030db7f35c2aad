"""Bad graphs, given to the command: one line that names the trouble, exit code 2, nothing written."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foreign_folders
import numpy as np
import pytest

from weft.cli.main import main
from weft.errors import FormatError
from weft.format import MANIFEST, RECORDS, _manifest_checksum
from weft.graph.graph import Graph
from weft.graph.parts.partition import read_shard
from weft.strategies.records.record_loader import RecordFiles
from weft.train.saved.checkpoint import Checkpoints

Arrays = dict[str, Any]
NODES = 6


def good() -> Arrays:
    """A ring of six nodes."""
    mask = np.zeros((3, NODES), bool)
    mask[0, :3], mask[1, 3], mask[2, 4:] = True, True, True
    return {
        "edge_index": np.array([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]], np.int32),
        "num_nodes": np.int64(NODES),
        "x": np.eye(NODES, 4, dtype=np.float32),
        "y": np.array([0, 1, 0, 1, 0, 1], np.int16),
        "train_mask": mask[0],
        "val_mask": mask[1],
        "test_mask": mask[2],
    }


def put(name: str, value: Any) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.update({name: np.asarray(value)})


def at(name: str, place: Any, value: Any) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[name][place] = value

    return change


BAD: dict[str, tuple[Callable[[Arrays], None], str]] = {
    "negative id": (at("edge_index", (0, 1), -1), "edge 1 has source -1, nodes are 0 … 5"),
    "id too large": (at("edge_index", (1, 2), 6), "edge 2 has target 6, nodes are 0 … 5"),
    "three rows of ids": (put("edge_index", np.zeros((3, 4), np.int32)), "must have shape (2, E)"),
    "fractional ids": (
        put("edge_index", np.zeros((2, 4), np.float32) + 0.5),
        "edge_index must hold integers",
    ),
    "features too short": (put("x", np.eye(5, 4, dtype=np.float32)), ": x has 5 rows, but there are 6 nodes"),
    "a feature is nan": (at("x", (2, 3), np.nan), "column 3"),
    "a feature is infinite": (at("x", (2, 1), np.inf), "column 1"),
    "label below -1": (at("y", 0, -2), "y holds label -2 at node 0"),
    "labels too short": (put("y", np.zeros(5, np.int16)), ": y has 5 rows, but there are 6 nodes"),
    "masks overlap": (at("val_mask", 0, True), "train_mask and val_mask overlap"),
    "train mask empty": (put("train_mask", np.zeros(NODES, bool)), "train_mask chooses none of the 6 nodes"),
    "mask of numbers": (put("val_mask", np.full(NODES, 0.5)), "val_mask must be boolean"),
    "mask too short": (put("val_mask", np.zeros(5, bool)), "val_mask has 5 rows"),
    "no nodes": (
        lambda arrays: arrays.update(
            edge_index=np.zeros((2, 0), np.int32), num_nodes=np.int64(0), x=np.zeros((0, 4), np.float32)
        ),
        "a graph needs at least one node, got num_nodes=0",
    ),
}


def refused(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    out = tmp_path / "run"
    code = main(["train", "--set", f"data.path={path}", "--set", "train.epochs=2", "--out", str(out)])
    shown = capsys.readouterr()
    assert code == 2, shown.err
    assert shown.out == ""
    assert shown.err.startswith("weft: error: ")
    assert shown.err.count("\n") == 1
    assert not out.exists()
    return shown.err


@pytest.mark.parametrize("name", BAD)
def test_a_bad_array_is_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, message = BAD[name]
    arrays = good()
    change(arrays)
    np.savez(tmp_path / "graph.npz", **arrays)
    assert message in refused(tmp_path / "graph.npz", tmp_path, capsys)


def test_the_good_graph_trains(tmp_path: Path) -> None:
    np.savez(tmp_path / "graph.npz", **good())
    arguments = ["train", "--set", f"data.path={tmp_path / 'graph.npz'}", "--set", "train.epochs=2"]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0


def test_no_edges_is_legal(tmp_path: Path) -> None:
    np.savez(tmp_path / "graph.npz", **good() | {"edge_index": np.zeros((2, 0), np.int32)})
    arguments = ["train", "--set", f"data.path={tmp_path / 'graph.npz'}", "--set", "train.epochs=2"]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0


def test_a_truncated_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "graph.npz"
    np.savez(path, **good())
    path.write_bytes(path.read_bytes()[:-200])
    assert "graph.npz" in refused(path, tmp_path, capsys)


def test_a_pickle_with_our_name_is_refused_and_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    for name in ("graph.npz", "graph.pt"):
        (tmp_path / name).write_bytes(pickle.dumps(Trap()))
        refused(tmp_path / name, tmp_path, capsys)
    np.savez(tmp_path / "object.npz", **good() | {"x": np.array([Trap()], object)})
    refused(tmp_path / "object.npz", tmp_path, capsys)
    assert not (tmp_path / "sprung").exists()


def saved(tmp_path: Path) -> Path:
    arrays = good()
    graph = Graph.from_edges(arrays.pop("edge_index"), **arrays)
    graph.save(tmp_path / "graph")
    return tmp_path / "graph"


def test_a_flipped_bit_in_a_saved_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved(tmp_path)
    path = max(folder.glob("*.npy"), key=lambda file: file.stat().st_size)
    data = bytearray(path.read_bytes())
    data[-1] ^= 4
    path.write_bytes(bytes(data))
    assert path.name in refused(folder, tmp_path, capsys)


def test_a_truncated_array_in_a_saved_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved(tmp_path)
    path = max(folder.glob("*.npy"), key=lambda file: file.stat().st_size)
    path.write_bytes(path.read_bytes()[:-8])
    assert path.name in refused(folder, tmp_path, capsys)


def test_a_manifest_that_points_outside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved(tmp_path)
    path = folder / MANIFEST
    manifest = json.loads(path.read_text())
    name = max(manifest["arrays"], key=lambda name: manifest["arrays"][name]["bytes"])
    manifest["arrays"][name]["file"] = f"../{manifest['arrays'][name]['file']}"
    manifest["checksum"] = _manifest_checksum(manifest)  # an attacker would not forget it
    path.write_text(json.dumps(manifest))
    assert "outside its folder" in refused(folder, tmp_path, capsys)


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (foreign_folders.folder, Graph.load),
        (foreign_folders.shards, lambda path: read_shard(path, 0)),
        (foreign_folders.records, lambda path: RecordFiles.open(path).read(0, 0, 1)),
        (foreign_folders.checkpoint, lambda path: Checkpoints(path).load()),
    ],
    ids=["folder", "shards", "records", "checkpoint"],
)
def test_no_link_is_followed_in_what_weft_wrote(
    make: Callable[[Path], Path], read: Callable[[Path], Any], tmp_path: Path
) -> None:
    """Each file and each folder in turn, moved elsewhere with a link in its place."""
    whole, elsewhere = make(tmp_path), tmp_path / "elsewhere"
    read(whole)
    unread = ("assignment", "part-00001")
    places = [path for path in whole.rglob("*") if path.relative_to(whole).parts[0] not in unread]
    assert len(places) >= 2
    for path in places:
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
        with pytest.raises(FormatError, match=rf"{path.name}: a symbolic link; weft reads only files"):
            read(whole)
        path.unlink()
        elsewhere.rename(path)


@pytest.mark.parametrize(
    "file", ["../part-00000.parquet", "/tmp/part-00000.parquet", "sub/part-00000.parquet"]
)
def test_records_that_point_outside_are_refused(file: str, tmp_path: Path) -> None:
    path = foreign_folders.records(tmp_path)
    shutil.copy(path / "part-00000.parquet", tmp_path / "part-00000.parquet")
    manifest = json.loads((path / RECORDS).read_bytes())
    manifest["meta"]["parts"][0]["file"] = file
    manifest["files"][file] = manifest["files"].pop("part-00000.parquet") | {"file": file}
    manifest["checksum"] = _manifest_checksum(manifest)
    (path / RECORDS).write_text(json.dumps(manifest))
    with pytest.raises(FormatError, match="is not a plain file name inside the folder"):
        RecordFiles.open(path).read(0, 0, 1)
