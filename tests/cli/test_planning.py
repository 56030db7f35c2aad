"""The plan command: what every configuration costs, before any of them is run."""

import json
from dataclasses import replace
from pathlib import Path

import plan_jobs
import pytest
from plan_machine import machine

import weft
import weft.machine
from weft.cli import planning
from weft.cli.main import main
from weft.plan.machine import keep_machine
from weft.strategies.buckets.orders import oracle

SMALL = [f"--set=data.{each}" for each in ("name=community", "nodes=200", "features=8", "degree=6")]
SMALL += ["--set=model.hidden=8", "--set=strategy.name=halo", "--set=strategy.partitioner=range"]
KEYS = {
    "strategy",
    "exchange",
    "workers",
    "bytes_per_epoch",
    "peak_memory_bytes",
    "epoch_seconds",
    "dollars_per_epoch",
    "value_per_epoch",
    "exact",
}


@pytest.fixture(autouse=True)
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep_machine(replace(machine(), cores=weft.machine.usable_cores()))


def test_json_has_every_configuration_and_the_picture_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = tmp_path / "cluster.toml"
    prices = "[cluster]\nmachine = 'large'\nworkers = 2\n[cluster.prices]\ndate = '2026-11-01'\nlarge = 3.6\n"
    cluster.write_text(f"[machine]\ncores = 2\nmemory = '4GiB'\n{prices}")
    asked = [
        "--workers",
        "1:2",
        "--only",
        "single,halo",
        "--set=strategy.exchange=exact",
        "--cluster",
        str(cluster),
    ]
    picture = tmp_path / "plan.svg"
    assert main(["plan", *SMALL, *asked, "--json", "--picture", str(picture)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert all(set(each) >= KEYS for each in told["configurations"])
    assert told["recommended"] == told["configurations"][0]
    for each in told["configurations"]:
        assert each["memory_limit_bytes"] == (4 << 30) // each["workers"]
        whole = each["epoch_seconds"] + each["evaluation_seconds"]
        assert each["dollars_per_epoch"] == pytest.approx(whole * 1e-3)
        assert each["value_per_epoch"] == pytest.approx(1 / (whole * whole * 1e-3))
    assert "dollars an epoch" in picture.read_text()


def test_people_are_told_what_is_recommended_and_why_others_lost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *SMALL, "--workers", "1", "--only", "single,records"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("recommended: single on 1 worker: the fastest exact one")
    assert "- records: it reads neighbourhoods that `weft flatten` has to make first" in told


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (["--workers", "4:1"], "--workers: expected"),
        (["--workers", "some"], "--workers: expected"),
        (["--memory", "much"], "memory: expected a size"),
        (["--nodes", "100"], "--nodes and one of --edges and --degree"),
        (["--only", "nothing"], "no strategy 'nothing'"),
        (["--epochs", "1"], "--epochs"),
        (["--set=model.class=mine.py:Net"], "model.class: a plan rehearses layers of weft by name"),
        (["--cluster", "none.toml"], "none.toml: cannot be read"),
        (["--set=train.prices=none.toml"], "train.prices: cannot read none.toml"),
    ],
)
def test_mistakes_are_one_line(asked: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *SMALL, *asked]) == 2
    shown = capsys.readouterr().err
    assert line in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("data.path=none.npz", "none.npz: no such file or folder"),
        ("model.name=gnc", "no layer 'gnc'; did you mean 'gcn'"),
        ("strategy.name=sampld", "no strategy 'sampld'; did you mean 'sampled'"),
        ("task.name=links", "no task 'links'"),
        ("train.lrr=1", "unknown key train.lrr; did you mean 'lr'"),
    ],
)
def test_mistakes_are_told_before_the_machine_is_measured(
    asked: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planning, "machine_here", lambda **_: pytest.fail("it was measured"))
    assert main(["plan", "--workers", "1", "--set", asked]) == 2
    shown = capsys.readouterr().err
    assert line in shown
    assert shown.count("\n") == 1


@pytest.mark.slow
def test_a_plan_is_a_first_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "fresh"))
    asked = ["plan", *SMALL, "--workers", "1:2", "--only", "single,halo"]
    assert main(asked) == 0
    first = capsys.readouterr()
    assert first.out.startswith("recommended: ")
    assert first.err.startswith("weft: measuring this machine, once")
    assert main(asked) == 0
    assert capsys.readouterr().err == ""  # once


@pytest.mark.slow
def test_a_plan_counts_what_the_run_then_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--workers", "2", "--only", "halo", "--epochs", "3"]
    assert main(["plan", *SMALL, *asked, "--json"]) == 0
    (told,) = [
        each for each in json.loads(capsys.readouterr().out)["configurations"] if each["exchange"] == "exact"
    ]
    out = tmp_path / "run"
    assert main(["train", *SMALL, "--set=train.epochs=3", "--workers", "2", "--out", str(out)]) == 0
    from weft.report.traffic import read_traffic

    events = [event for rank in (0, 1) for event in plan_jobs.read(out, rank)]
    found = read_traffic(events)
    assert found is not None
    assert found.total.bytes_sent == told["bytes_per_epoch"]
    assert found.total.messages == told["messages_per_epoch"]
    assert found.evaluation.bytes_sent == told["evaluation_bytes_per_epoch"]


def test_load_by_link_is_that_of_the_bytes_that_were_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, picture = tmp_path / "cluster.toml", tmp_path / "links.svg"
    cluster.write_text(
        "[machine]\ncount = 2\ncores = 1\nmemory = '4GiB'\n[within_rack]\nbandwidth = '1Mbit'\n"
    )
    asked = [*SMALL, "--workers", "2", "--only", "halo", "--set=strategy.exchange=exact"]
    asked += ["--cluster", str(cluster), "--links", str(picture)]
    assert main(["plan", *asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    load = {each["name"]: each["bytes_in_order"] for each in told["deal"]["links"]}
    assert load["machine 0 out"] + load["machine 1 out"] == told["recommended"]["bytes_per_epoch"]
    assert sorted(told["deal"]["part_rank"]) == [0, 1]
    assert told["deal"]["bound_seconds"] <= told["deal"]["busiest_seconds"]
    assert "machine 1 in" in picture.read_text()
    assert main(["plan", *SMALL, "--workers", "1", "--only", "single", "--links", str(picture)]) == 2
    assert "--links: needs several workers" in capsys.readouterr().err


ROWS = ["--set=strategy.name=buckets", "--set=task.name=link_prediction", "--set=task.width=16"]
ROWS += ["--set=strategy.partitions=8", "--set=train.optimizer=adagrad"]


def test_a_plan_of_buckets_counts_its_tables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "machine_here", None)  # nothing is measured
    assert main(["plan", *ROWS, "--nodes", "1000000", "--edges", "5000000", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["swaps"] == oracle(8, 2)
    assert told["room"]["disk"] == {
        "versions of rows": 3 * 1_000_000 * 17 * 4,
        "rows in the end": 1_000_000 * 16 * 4,
        "edges": 5_000_000 * 12,
    }
    assert main(["plan", *ROWS, "--set=data.name=community", "--set=data.nodes=60"]) == 0
    assert "28 visits in the order 'buffered'" in capsys.readouterr().out
    assert main(["plan", *ROWS, "--workers", "1:4"]) == 2
    assert "--workers: is not of 'buckets'" in capsys.readouterr().err
