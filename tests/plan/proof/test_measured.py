"""What a run did is read from its folder, and held to a plan byte by byte."""

import json
from pathlib import Path
from typing import Any

import pytest

from weft.errors import FormatError
from weft.plan.proof.measured import counts_of, differing, read_measured


def volume(kind: str, size: int, number: int, peer: int = 1) -> dict[str, Any]:
    counts = {"bytes_sent": size, "messages_sent": number, "bytes_received": 0, "messages_received": 0}
    return {"kind": kind, "slot": 0, "direction": "forward", "peer": peer, **counts}


def traffic(rank: int, forward: float, size: int) -> dict[str, Any]:
    phases = {"forward": forward, "evaluate": 9.0}
    volumes = [volume("halo", size, 1), volume("control", 0, 0)]
    return {
        "event": "traffic",
        "rank": rank,
        "seconds_of_phases": phases,
        "peak_memory_bytes": 100 + rank,
        "volumes": volumes,
        "seconds": [
            {"kind": "halo", "exposed": 0.25},
            {"kind": "evaluate", "exposed": 4.0},
            {"kind": "control", "exposed": 0.5},
        ],
    }


def write(path: Path, events: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")


def test_ranks_are_read_in_their_order_and_the_slowest_tells_an_epoch(tmp_path: Path) -> None:
    write(tmp_path / "events.jsonl", [traffic(0, 50.0, 8), traffic(0, 1.0, 8), traffic(0, 2.0, 8)])
    for rank in range(1, 11):
        write(tmp_path / f"events-rank{rank}.jsonl", [traffic(rank, 3.0 if rank == 10 else 0.5, 4)] * 3)
    run = read_measured(tmp_path)
    assert run.peaks == list(range(100, 111))
    assert run.peak == 110
    assert run.epoch_seconds == 3.0  # not the first epoch, not the evaluation
    assert run.phases == {"evaluate": 9.0, "forward": 3.0}
    assert run.working == [1.25, *[0.25] * 9, 2.75]  # what waits for others is no work
    assert run.sent[0][0] == {"halo 0 forward to 1": (8, 1)}
    assert run.sent[10][2] == {"halo 0 forward to 1": (4, 1)}


def test_one_process_tells_its_epochs_and_the_summary_its_memory(tmp_path: Path) -> None:
    epochs = [{"event": "epoch", "seconds": {"forward": each}} for each in (9.0, 1.0, 3.0, 2.0)]
    write(tmp_path / "events.jsonl", [*epochs, {"event": "end", "summary": {"peak_memory_bytes": 7}}])
    run = read_measured(tmp_path)
    assert (run.peak, run.epoch_seconds, run.sent) == (7, 2.0, [[{}, {}, {}, {}]])


def test_a_run_that_did_not_end_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "events.jsonl", [{"event": "start"}])
    with pytest.raises(FormatError, match="ended"):
        read_measured(tmp_path)


def test_what_differs_is_told_by_purpose_and_never_cancels() -> None:
    planned = [counts_of({"volumes": [volume("halo", 10, 1), volume("gradient", 5, 1)]})]
    counted = [counts_of({"volumes": [volume("halo", 7, 1), volume("gradient", 8, 1)]})]
    assert differing(planned, planned) == {}
    assert differing(planned, counted) == {
        "halo 0 forward to 1": (3, 0),
        "gradient 0 forward to 1": (3, 0),
    }
    assert differing(planned, [{}])["halo 0 forward to 1"] == (10, 1)
