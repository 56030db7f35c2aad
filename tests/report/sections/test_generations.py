"""Who trained when, and what each part cost, where workers came and went."""

from __future__ import annotations

import json
from pathlib import Path

from weft.report.read import read_run
from weft.report.sections.generations import generations, moved_parts, part_costs

from .. import samples


def changed(folder: Path) -> Path:
    """A run of four parts on two workers, then on three; the last part costs as much as all others."""
    samples.write_workers(folder, 6, workers=4)
    for path in folder.glob("events*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for event in lines:
            if event["event"] == "traffic":
                slow = 100 if event["epoch"] <= 3 else 1
                event["computed_seconds"] = (0.003 if event["rank"] == 3 else 0.001) * slow
        if path.name == "events.jsonl":
            told = {"time": 0.1, "event": "generation", "seconds": 0.25}
            first = {**told, "generation": 1, "epoch": 0, "workers": [0, 1], "parts": [0, 0, 1, 1], "why": ""}
            then = {"generation": 2, "epoch": 3, "workers": [0, 1, 2], "parts": [0, 2, 1, 1]}
            lines += [first, {**told, **then, "why": "worker 2 came"}]
        path.write_text("".join(json.dumps(event) + "\n" for event in lines))
    return folder


def test_parts_and_workers_are_told_with_what_they_cost_since_the_last_change(tmp_path: Path) -> None:
    run = read_run(changed(tmp_path / "run"))
    drawn = part_costs(run)
    for row in (("part 3", "worker 1", "3.00 ms", "50.0 %"), ("worker 1", "2, 3", "4.00 ms", "2.00")):
        assert all(text in drawn for text in row), row
    assert "0.50" in drawn
    assert "worker 2 came" in generations(run)


def test_parts_that_moved_are_told_with_what_it_gained(tmp_path: Path) -> None:
    folder = changed(tmp_path / "run")
    assert moved_parts(read_run(folder)) == "", "workers came, and no part moved by itself"
    file = folder / "events.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for event in lines:
        if event["event"] == "epoch":
            event["seconds"] = {"forward": 0.4 if event["epoch"] <= 3 else 0.3}
        if event.get("generation") == 2:
            moves = [{"part": 1, "source": 0, "target": 2}]
            event["moved"] = {"slow": 0, "moves": moves, "seconds": 0.35, "expected": 0.25}
    file.write_text("".join(json.dumps(event) + "\n" for event in lines))
    drawn = moved_parts(read_run(folder))
    for text in ("part 1: worker 0 → 2", "worker 0 is slow", "350 ms → 250 ms", "400 ms → 300 ms", "25.0 %"):
        assert text in drawn, text


def test_a_run_whose_workers_stay_tells_of_neither(tmp_path: Path) -> None:
    run = read_run(samples.write_workers(tmp_path / "run", 3))
    assert (part_costs(run), generations(run), moved_parts(run)) == ("", "", "")
