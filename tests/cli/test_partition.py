"""weft partition: shards, a table, a picture, one JSON object."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from plan_machine import machine

from weft.cli.main import main
from weft.graph.parts.partition import read_partition, read_shard
from weft.machine import usable_cores
from weft.plan.machine import keep_machine
from weft.train.workers.placed import dealt_in


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    file = tmp_path / "ring.npz"
    ring = np.arange(12)
    edges = np.stack([np.concatenate([ring, (ring + 1) % 12]), np.concatenate([(ring + 1) % 12, ring])])
    np.savez(file, edge_index=edges.astype(np.int32), num_nodes=12)
    return file


def test_shards_table_and_picture_are_made(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "parts"
    command = ["partition", str(graph), "--parts", "3", "--name", "range", "--out", str(out)]
    assert main([*command, "--hidden", "10", "--layers", "2", "--json"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert (told["num_parts"], told["name"], told["halo_rows"]) == (3, "range", 6)
    assert told["predicted"]["exact"] == 2 * 6 * 10 * 4
    for words in ("cut edges", "halo rows", "replication factor", "balance of bytes", "sampled 0.1"):
        assert words in captured.err
    assert [len(read_shard(out, part).node_ids) for part in range(3)] == [4, 4, 4]
    info = read_partition(out)
    assert info.quality is not None
    assert info.quality.halo_rows == 6
    page = (out / "partition.html").read_text()
    assert page.count("<rect") == 9
    assert "part 0 takes 1 halo rows from part 1" in page
    assert "http" not in page.replace("http-equiv", "")


def test_options_of_partitioner_and_data_are_set(graph: Path, tmp_path: Path) -> None:
    out = tmp_path / "parts"
    command = ["partition", str(graph), "--parts", "2", "--name", "range", "--out", str(out)]
    assert main([*command, "--set", "balance=nodes", "--set", "data.self_loops=true"]) == 0
    assert read_partition(out).options == {"seed": 0, "balance": "nodes"}
    assert read_partition(out).num_edges == 24 + 12


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (["--name", "hahs"], "no partitioner 'hahs'; did you mean 'hash'?"),
        (["--set", "nonsense=1"], "unknown key partitioner 'range'.nonsense"),
        (["--set", "model.hidden=1"], "expected key=value or data.key=value"),
        (["--set", "hidden=1"], "give it as --hidden 1"),
        (["--parts", "0"], "at least 1, got 0"),
    ],
)
def test_mistakes_are_one_line(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], told: str
) -> None:
    command = ["partition", str(graph), "--parts", "2", "--name", "range", "--out", str(tmp_path / "parts")]
    assert main([*command, *extra]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not (tmp_path / "parts").exists()


def test_an_existing_folder_is_kept_unless_asked(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["partition", str(graph), "--name", "range", "--out", str(tmp_path / "parts"), "--parts"]
    assert main([*command, "2"]) == 0
    assert main([*command, "3"]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main([*command, "3", "--overwrite"]) == 0
    assert read_partition(tmp_path / "parts").num_parts == 3


def test_more_parts_than_nodes_are_refused(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "parts"
    assert main(["partition", str(graph), "--parts", "99999", "--out", str(out)]) == 2
    assert "--parts 99999: the graph has 12 nodes; ask for at most as many" in capsys.readouterr().err
    assert not out.exists()


def test_parts_are_dealt_to_the_workers_of_a_cluster(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep_machine(replace(machine(), cores=usable_cores()))
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        "[machine]\ncount = 2\ncores = 1\nmemory = '4GiB'\n[within_rack]\nbandwidth = '1Mbit'\n"
    )
    out = tmp_path / "parts"
    command = ["partition", str(graph), "--parts", "4", "--name", "hash", "--out", str(out)]
    assert main([*command, "--cluster", str(cluster), "--json"]) == 0
    captured = capsys.readouterr()
    deal = json.loads(captured.out)["deal"]
    assert "dealt to 2 workers" in captured.err
    assert dealt_in(out, 2) == deal["part_rank"]
    assert deal["bound_seconds"] <= deal["busiest_seconds"] <= deal["busiest_seconds_in_order"]
    info = read_partition(out)
    assert info.quality is not None
    # Rows go one way and their gradients back: both ways together are what is predicted, each link has half
    # of what crosses.
    taken, owner = np.array(info.quality.links, dtype=float), deal["part_rank"]
    crossing = sum(taken[p, q] for p in range(4) for q in range(4) if owner[p] != owner[q])
    expected = crossing / taken.sum() * info.quality.predicted["exact"] / 2
    assert {each["name"]: each["bytes"] for each in deal["links"]}["machine 0 out"] == pytest.approx(expected)
    assert (out / "links.svg").read_text().startswith("<svg")


def test_workers_that_a_cluster_has_not_are_refused(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text("[machine]\ncores = 2\nmemory = '4GiB'\n")
    command = ["partition", str(graph), "--parts", "4", "--out", str(tmp_path / "parts"), "--workers", "3"]
    assert main(command) == 2
    assert "add --cluster cluster.toml" in capsys.readouterr().err
    assert main([*command, "--cluster", str(cluster)]) == 2
    assert "--workers 3: expected 1 to 2, for 4 parts on the machines of" in capsys.readouterr().err
    assert not (tmp_path / "parts").exists()
