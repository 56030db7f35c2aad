"""The simulate command: workers that are not here."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from plan_machine import machine

import weft.machine
from weft.cli.main import main
from weft.plan.machine import keep_machine

SMALL = [f"--set=data.{each}" for each in ("name=community", "nodes=400", "features=8", "degree=6")]
SMALL += ["--set=model.hidden=8", "--set=strategy.partitioner=hash", "--set=strategy.name=halo"]
FEW = ["--rehearse", "1,2", "--parts", "2,4"]


@pytest.fixture(autouse=True)
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep_machine(replace(machine(), cores=weft.machine.usable_cores()))


def told(capsys: pytest.CaptureFixture[str], *asked: str) -> dict:  # type: ignore[type-arg]
    assert main(["simulate", *SMALL, *FEW, *asked, "--json"]) == 0
    found: dict = json.loads(capsys.readouterr().out)  # type: ignore[type-arg]
    return found


def test_json_has_every_question_that_was_asked_and_pictures_are_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "lines.svg"
    asked = ["--workers", "1,2,40", "--only", "single,halo", "--exchange", "exact,quantised", "--weak"]
    asked += ["--bandwidth", "100Mbit,10Gbit", "--failures", "2", "--leaving", "1", "--picture", str(picture)]
    found = told(capsys, *asked)
    names = {(each["strategy"], each["exchange"], each["workers"]) for each in found["strong"]}
    assert names >= {("single", None, 1), ("halo", "exact", 40), ("halo", "quantised", 2)}
    for each in found["strong"]:
        assert each["low"] <= each["epoch_seconds"] <= each["high"]
        assert each["counted"] == (each["workers"] < 40)
    slow, fast = (
        {(p["exchange"], p["workers"]): p["epoch_seconds"] for p in found["links"][speed]}
        for speed in ("100Mbit", "10Gbit")
    )
    assert slow["exact", 2] > fast["exact", 2]
    assert slow["exact", 2] > slow["quantised", 2], "half the bytes on a slow link"
    assert found["laws"][0]["partitioner"] == "hash"
    assert {each["failures_an_hour"] for each in found["failures"]} == {2.0}
    assert found["elastic"]
    assert {each["workers"] for each in found["weak"]} == {1, 2, 40}
    assert picture.read_text().count("<polyline") == 3 * 4  # three lines: strong, weak, and two speeds


@pytest.mark.slow
def test_stragglers_racks_and_prices_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        "[machine]\ncount = 8\ncores = 4\nmemory = '4GiB'\nracks = 4\n[within_rack]\nbandwidth = '10Gbit'\n"
        "[between_racks]\nbandwidth = '10Mbit'\n[cluster]\nmachine = 'm'\nworkers = 2\n"
        "[cluster.prices]\ndate = '2026-11-01'\nm = 3.6\n"
    )
    base = ["--workers", "2,8", "--only", "halo", "--exchange", "exact", "--cluster", str(cluster)]
    even, uneven = (told(capsys, *base, *more)["strong"] for more in ([], ["--stragglers", "0.1:50"]))
    assert all(slow["epoch_seconds"] > fast["epoch_seconds"] for slow, fast in zip(uneven, even))
    near, far = even
    assert far["epoch_seconds"] > 3 * near["epoch_seconds"], "8 workers need two racks"
    assert near["dollars"] == pytest.approx(near["epoch_seconds"] * 1e-3)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--workers", "20000"], "1 to 10000"),
        (["--workers", "many"], "--workers"),
        (["--stragglers", "2"], "--stragglers"),
        (["--stragglers", "x:y"], "--stragglers"),
        (["--failures=-1"], "--failures"),
        (["--bandwidth", "fast"], "--bandwidth"),
        (["--only", "halos"], "halos"),
        (["--features", "3"], "--nodes"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    asked: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *SMALL, *asked]) == 2
    said = capsys.readouterr().err.strip()
    assert told in said
    assert len(said.splitlines()) == 1
