"""Partitioned graphs on disk: what is read is what was written, and nothing else passes."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from generated_graphs import assert_equal, graphs, typed_graphs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.errors import FormatError
from weft.format import read_directory
from weft.graph import Graph
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.partition import read_partition, read_shard, write_partition
from weft.graph.parts.shard import Shard, make_shards


@pytest.fixture
def graph() -> Graph:
    return Graph.from_edges([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]], x=torch.rand(4, 2), edge_weight=torch.rand(5))


@pytest.fixture
def written(graph: Graph, tmp_path: Path) -> Path:
    write_partition(tmp_path / "parts", graph, torch.tensor([0, 1, 1, 0]))
    return tmp_path / "parts"


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.one_of(graphs(), typed_graphs()),
    st.integers(1, 3),
    st.sampled_from(["nodes", "edges"]),
    st.integers(0, 99),
)
def test_what_is_read_is_what_was_written(
    tmp_path: Path, graph: Graph, num_parts: int, cuts: str, seed: int
) -> None:
    count = graph.num_nodes if cuts == "nodes" else graph.num_edges
    parts = torch.randint(0, num_parts, (count,), generator=torch.Generator().manual_seed(seed)).int()
    assignment = Assignment(parts, num_parts, "given", {}, cuts)  # type: ignore[arg-type]
    path = tmp_path / "parts"
    info = write_partition(path, graph, assignment, overwrite=True)
    assert (info.num_parts, info.num_nodes, info.num_edges) == (num_parts, graph.num_nodes, graph.num_edges)
    assert info.assignment == assignment.sha256
    kept, _ = read_directory(path / "assignment")
    assert kept["parts"].tolist() == parts.tolist()
    for part, shard in enumerate(make_shards(graph, assignment)):
        assert_same_shard(read_shard(path, part), shard)


def test_a_shard_is_read_without_the_folders_of_the_others(written: Path, graph: Graph) -> None:
    shutil.rmtree(written / "part-00001")
    shutil.rmtree(written / "assignment")
    assert_same_shard(read_shard(written, 0), make_shards(graph, torch.tensor([0, 1, 1, 0]))[0])


def test_a_truncated_array_is_named(written: Path) -> None:
    file = written / "part-00001" / "indices.npy"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(FormatError, match=r"part-00001.indices\.npy: truncated"):
        read_shard(written, 1)


def test_a_flipped_bit_is_named(written: Path) -> None:
    file = written / "part-00001" / "edge_ids.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(FormatError, match=r"part-00001.edge_ids\.npy: damaged"):
        read_shard(written, 1)


def test_a_part_of_another_partition_is_refused(written: Path, graph: Graph, tmp_path: Path) -> None:
    write_partition(tmp_path / "other", graph, torch.tensor([1, 0, 1, 0]))
    shutil.rmtree(written / "part-00001")
    shutil.copytree(tmp_path / "other" / "part-00001", written / "part-00001")
    with pytest.raises(FormatError, match=r"part-00001: not the part that partition\.json lists"):
        read_shard(written, 1)


def test_parts_of_a_newer_version_are_refused_with_the_remedy(written: Path) -> None:
    told = json.loads((written / "partition.json").read_text())
    (written / "partition.json").write_text(json.dumps({**told, "version": told["version"] + 1}))
    with pytest.raises(FormatError, match=r"this weft reads .* up to version \d+; upgrade weft, or make"):
        read_shard(written, 0)


def test_a_part_that_is_missing_or_was_never_there_is_named(written: Path) -> None:
    with pytest.raises(FormatError, match=r"no part 2, it has parts 0 … 1"):
        read_shard(written, 2)
    shutil.rmtree(written / "part-00000")
    with pytest.raises(FormatError, match="part-00000 does not exist"):
        read_shard(written, 0)


def test_a_changed_description_is_refused(written: Path) -> None:
    file = written / "partition.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "num_nodes": 5}))
    with pytest.raises(FormatError, match=r"partition\.json: damaged"):
        read_partition(written)
    file.write_text("{")
    with pytest.raises(FormatError, match=r"partition\.json: damaged"):
        read_partition(written)
    file.unlink()
    with pytest.raises(FormatError, match=r"holds no partition\.json"):
        read_partition(written)


def test_the_fingerprint_stands_for_parts_and_data(graph: Graph, tmp_path: Path) -> None:
    parts = torch.tensor([0, 1, 1, 0])
    first = write_partition(tmp_path / "a", graph, parts)
    again = write_partition(tmp_path / "b", graph, parts)
    other = Graph.from_edges(graph.edge_index, x=graph.x + 1, edge_weight=torch.rand(5))
    changed = write_partition(tmp_path / "c", other, parts)
    assert first.sha256 == again.sha256
    assert first.assignment == changed.assignment
    assert first.sha256 != changed.sha256


def test_a_folder_is_replaced_only_when_asked_and_only_if_it_is_a_partition(
    written: Path, graph: Graph, tmp_path: Path
) -> None:
    with pytest.raises(FormatError, match="already exists"):
        write_partition(written, graph, torch.tensor([0, 0, 1, 1]))
    write_partition(written, graph, torch.tensor([0, 0, 1, 1]), overwrite=True)
    assert read_shard(written, 0).node_ids.tolist() == [0, 1]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    with pytest.raises(FormatError, match="left as it is"):
        write_partition(tmp_path / "mine", graph, torch.tensor([0, 0, 1, 1]), overwrite=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_nothing_is_left_behind_when_writing_fails(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("weft.graph.parts.partition._write_shard", fail)
    with pytest.raises(FormatError, match="No space left"):
        write_partition(tmp_path / "parts", graph, torch.tensor([0, 0, 1, 1]))
    assert list(tmp_path.iterdir()) == []


def assert_same_shard(a: Shard, b: Shard) -> None:
    for item in fields(Shard):
        mine, theirs = getattr(a, item.name), getattr(b, item.name)
        if item.name in ("edge_data", "node_data"):
            assert mine.keys() == theirs.keys()
        elif item.name == "degrees":
            for part in fields(mine.into):
                assert_equal(getattr(mine.into, part.name), getattr(theirs.into, part.name))
                assert_equal(getattr(mine.out_of, part.name), getattr(theirs.out_of, part.name))
        elif isinstance(theirs, torch.Tensor):
            assert_equal(mine, theirs)
        else:
            assert mine == theirs, item.name
    for name, value in b.edge_data.items():
        assert_equal(a.edge_data[name], value)
    for kind, data in b.node_data.items():
        assert a.node_data[kind].keys() == data.keys()
        for name, value in data.items():
            assert_equal(a.node_data[kind][name], value)


def test_parts_that_lie_elsewhere_are_refused(tmp_path: Path) -> None:
    import foreign_folders

    path = foreign_folders.shards(tmp_path)
    body = json.loads((path / "partition.json").read_bytes())
    body.pop("sha256")
    for name in ("../part-00000", "/tmp/part-00000", "part-00001"):
        body["parts"][0]["folder"] = name
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        (path / "partition.json").write_text(json.dumps({**body, "sha256": digest}))
        with pytest.raises(FormatError, match=r"partition\.json: part 0 lies in .*, not in the folder"):
            read_shard(path, 0)


def test_features_keep_their_type_in_the_files_of_a_part(tmp_path: Path) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        x = torch.rand(4, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
        graph = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 0]], x=x)
        write_partition(tmp_path / "parts", graph, torch.tensor([0, 1, 1, 0]), overwrite=True)
        held = read_shard(tmp_path / "parts", 1).node_data["node"]["x"]
        assert isinstance(held, torch.Tensor)
        assert (held.dtype, held.tolist()) == (dtype, x[[1, 2]].tolist())


def test_what_was_written_is_told(graph: Graph, tmp_path: Path) -> None:
    seen: list[float] = []
    write_partition(tmp_path / "parts", graph, torch.tensor([0, 1, 1, 0]), watch=seen.append)
    assert seen == [0.0, 0.5]


_MEASURED = """
import sys
from pathlib import Path
import torch
from weft.graph import Graph, row_ranges
from weft.graph.parts import shard
from weft.graph.parts.partition import write_partition
from weft.stores.open import in_files
row_ranges.EDGES_AT_ONCE = shard._ROWS_AT_ONCE = 1 << 12
def peak():
    line = next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
for number, path in enumerate(sys.argv[1:]):
    graph = in_files(Graph.load(path, verify=False))
    parts = (torch.arange(graph.num_nodes) % 2).int()
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = peak()
    write_partition(f"{path}-parts", graph, parts)
    print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
def test_memory_does_not_rise_with_edges_and_features(tmp_path: Path) -> None:
    """A part is written as it is cut; what rises are pages of the graph's own files, 4 bytes an edge."""
    nodes, edges = 20_000, (200_000, 1_200_000)
    paths = []
    for count in (edges[0], *edges):  # the first warms up
        ends = torch.from_numpy(np.random.default_rng(0).integers(0, nodes, (2, count)))
        paths.append(tmp_path / str(len(paths)))
        Graph.from_edges(ends, num_nodes=nodes, x=torch.rand(nodes, 8)).save(paths[-1])
    command = [sys.executable, "-c", _MEASURED, *map(str, paths)]
    told = subprocess.run(command, check=True, capture_output=True, timeout=100).stdout
    _, small, large = (int(peak) for peak in told.split())
    assert (large - small) / (edges[1] - edges[0]) < 6, (small, large)


def test_a_partition_that_was_killed_is_not_there_and_made_anew(graph: Graph, tmp_path: Path) -> None:
    """Killed while its second part is written: nothing lies under its name, and what does is swept."""
    graph.save(tmp_path / "graph")
    code = f"""
import os, signal, torch
from weft.graph import Graph
from weft.graph.parts import partition
def kill(share):
    if share:
        os.kill(os.getpid(), signal.SIGKILL)
graph = Graph.load({str(tmp_path / "graph")!r})
partition.write_partition({str(tmp_path / "parts")!r}, graph, torch.tensor([0, 1, 1, 0]), watch=kill)
"""
    killed = subprocess.run([sys.executable, "-c", code], timeout=100, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "parts").exists()
    assert len(list(tmp_path.glob(".parts.*"))) == 1
    parts = torch.tensor([0, 1, 1, 0])
    write_partition(tmp_path / "parts", graph, parts)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph", "parts"]
    for part, shard in enumerate(make_shards(graph, parts)):
        assert_same_shard(read_shard(tmp_path / "parts", part), shard)
