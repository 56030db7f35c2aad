"""The forecast of a run beside what was measured."""

import json
import re
from pathlib import Path

from weft.report import write_report
from weft.report.read import read_run
from weft.report.sections.forecast import FILE, forecast

TOLD = {
    "bytes_per_epoch": 1000,
    "messages_per_epoch": 8,
    "peak_memory_bytes": 2_000_000,
    "seconds_by_phase": {"forward": 0.5, "backward": 0.25, "exchange": 0.125},
    "evaluation_seconds": 0.1,
}


def traffic(epoch: int, rank: int, forward: float) -> dict[str, object]:
    return {
        "event": "traffic",
        "epoch": epoch,
        "rank": rank,
        "volumes": [
            {
                "kind": "halo",
                "slot": 0,
                "direction": "forward",
                "peer": 1 - rank,
                "bytes_sent": 600,
                "bytes_received": 600,
                "messages_sent": 5,
            }
        ],
        "seconds": [{"kind": "halo", "slot": 0, "direction": "forward", "exposed": 0.2, "hidden": 0.0}],
        "seconds_of_phases": {"forward": forward, "backward": 0.3, "evaluate": 0.2},
        "peak_memory_bytes": 3_000_000,
    }


def written(folder: Path) -> Path:
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"status": "done", "summary": {"workers": 2}}))
    for rank in range(2):
        name = "events.jsonl" if rank == 0 else "events-rank1.jsonl"
        events = [traffic(epoch, rank, 9.0 if epoch == 1 else 1.0 + rank) for epoch in (1, 2, 3)]
        (folder / name).write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def rows_of(body: str) -> dict[str, list[str]]:
    rows = re.findall(r"<tr><th[^>]*>(.*?)</th>(.*?)</tr>", body)
    return {name: re.findall(r"<td[^>]*>(.*?)</td>", cells) for name, cells in rows}


def test_bytes_messages_memory_and_seconds_stand_beside_each_other(tmp_path: Path) -> None:
    run = written(tmp_path / "run")
    assert forecast(read_run(run)) is None  # of a run that nobody planned nothing is said
    (run / FILE).write_text(json.dumps(TOLD))
    section = forecast(read_run(run))
    assert section is not None
    rows = {name: cells[-1] for name, cells in rows_of(section.body).items() if cells}
    assert rows["bytes"] == "1.2"
    assert rows["messages"] == "1.25"
    assert rows["peak memory"] == "1.5"
    # Of the second worker, which trains longest, without the first epoch.
    assert rows["forward"] == "4"
    assert rows["backward"] == "1.2"
    assert rows["training"] == f"{2.3 / 0.875:.3g}"
    assert rows["waiting for others"] == "1.6"
    assert rows["evaluation"] == "2"
    assert "Forecast and measured" in write_report(run).read_text()


def test_a_damaged_forecast_costs_its_section_alone(tmp_path: Path) -> None:
    run = written(tmp_path / "run")
    (run / FILE).write_text("[]")
    page = write_report(run).read_text()
    assert "could not be drawn" in page
    assert "What an epoch sends" in page
