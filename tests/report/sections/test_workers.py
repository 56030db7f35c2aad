"""The ledger of a run: what was sent, who waited, who did what when."""

from __future__ import annotations

import json
from pathlib import Path

from weft.report import write_report
from weft.report.page import render
from weft.report.read import read_run
from weft.report.sections.workers import ledger_rows, workers

from .. import samples


def test_ledger_links_ranks_and_timeline_are_drawn(tmp_path: Path) -> None:
    folder = samples.write_workers(tmp_path / "run", workers=3)
    section = workers(read_run(folder))
    assert section is not None
    assert section.lead.startswith("3 workers send each other 13.5 KiB an epoch in 18 messages, 1.76 KiB of")
    for text in ("halo rows 1", "halo gradients 1", "evaluation", "features 24.0 KiB"):
        assert text in section.body
    assert section.body.count("<rect") == 9
    assert "rank 0 sends 2.25 KiB an epoch to rank 1" in section.body
    assert "Who did what when: epochs 18 – 20" in section.body
    assert section.body.count('class="fill wait"') == 1
    assert "3.00 MiB" in section.body
    assert not section.note


def test_one_process_has_no_such_section(tmp_path: Path) -> None:
    run = read_run(samples.write_run(tmp_path / "run", samples.meta(), samples.events(3)))
    assert workers(run) is None
    assert "Workers" not in render(run)


def test_a_rank_that_told_nothing_is_named(tmp_path: Path) -> None:
    folder = samples.write_workers(tmp_path / "run", 3, workers=3)
    (folder / "events-rank2.jsonl").unlink()
    section = workers(read_run(folder))
    assert section is not None
    assert section.note == "nothing was told by rank 2"
    for path in folder.glob("events-rank*"):
        path.unlink()
    (folder / "events.jsonl").write_text("")
    section = workers(read_run(folder))
    assert section is not None
    assert (section.body, section.note) == ("", "the events tell of no traffic")


def test_ages_skips_and_drift_are_shown_where_they_were_measured(tmp_path: Path) -> None:
    folder = samples.write_workers(tmp_path / "run", 8)
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    for event in lines:
        if event["event"] == "traffic":
            event |= {"staleness": {"0": 10, "1": 30}, "skipped": 3, "made": 1}
        if event["event"] == "epoch":
            event["drift"] = [0.01, 0.02] if event["epoch"] < 5 else {"0": 0.03, "1": 0.04}
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in lines))
    html = write_report(folder).read_text()
    for text in ("1 step old", "Exchanges that could be skipped", "Drift", "exchange 2 <b>0.0400</b>"):
        assert text in html
    assert "could not be drawn" not in html


def test_rows_of_the_ledger_end_with_their_sum(tmp_path: Path) -> None:
    run = read_run(samples.write_workers(tmp_path / "run", 4))
    assert run.traffic is not None
    rows = ledger_rows(run.traffic)
    assert rows[0] == ["halo rows 1", "1.95 KiB", "2", "2.00 ms", "1.00 ms"]
    assert rows[-1] == ["together", "4.49 KiB", "6", "6.00 ms", "3.00 ms"]
