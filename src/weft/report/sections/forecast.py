"""What a plan foretold of the run beside what was measured: bytes, messages, memory, and seconds by phase."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from weft.errors import FormatError
from weft.reading.json_values import read_json
from weft.report import words
from weft.report.markup import Section, panel, panels, small, table
from weft.report.read import Run

FILE = "forecast.json"
_NAMES = {"optimizer": "optimiser", "evaluate": "evaluation", "exchange": "waiting for others"}


def forecast(run: Run) -> Section | None:
    """The table of both, where a forecast was kept in the folder of the run."""
    told = _read(run)
    if told is None:
        return None
    rows = [
        [name, show(planned), show(measured), _ratio(planned, measured)]
        for name, show, planned, measured in _lines(run, told)
    ]
    body = table(["in an epoch", "forecast", "measured", "measured / forecast"], rows)
    note = small(
        "Epochs after the first; seconds are medians of the worker that trains longest. A forecast tells "
        "waiting by itself; what was measured is also within its phase."
    )
    lead = "The forecast was made by weft plan, from counts and from rates of the machine it was made on."
    return Section("Forecast", panels(panel("Forecast and measured", body + note, wide=True)), lead=lead)


def _lines(run: Run, told: Mapping[str, Any]) -> Iterator[tuple[str, Any, float, float]]:
    traffic = run.traffic
    total = None if traffic is None else traffic.total
    yield "bytes", words.size, _of(told, "bytes_per_epoch"), total.bytes_sent if total else 0.0
    yield "messages", words.count, _of(told, "messages_per_epoch"), total.messages if total else 0.0
    yield "peak memory", words.size, _of(told, "peak_memory_bytes"), _peak(run)
    planned = told.get("seconds_by_phase")
    phases = {str(name): words.number(value) or 0.0 for name, value in (planned or {}).items()}
    measured = _phases(run)
    training = sum(value for name, value in measured.items() if name != "evaluate")
    yield "training", words.seconds, sum(phases.values()), training
    phases["evaluate"] = _of(told, "evaluation_seconds")
    if traffic is not None:
        measured["exchange"] = traffic.training.exposed
    for name in dict.fromkeys((*phases, *measured)):
        if phases.get(name) or measured.get(name):
            yield _NAMES.get(name, name), words.seconds, phases.get(name, 0.0), measured.get(name, 0.0)


def _phases(run: Run) -> dict[str, float]:
    """Return the median seconds of each phase, of the worker that trains longest."""
    if run.traffic is None:
        held = [[epoch.seconds for epoch in run.epochs[1:] or run.epochs]]
    else:
        held = [
            [each.seconds for each in run.traffic.usual if each.rank == rank] for rank in run.traffic.ranks
        ]
    found = [_medians(epochs) for epochs in held if epochs]
    return max(found, key=lambda each: sum(each.values()) - each.get("evaluate", 0.0), default={})


def _medians(epochs: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for epoch in epochs for name in epoch)
    return {name: statistics.median(epoch.get(name, 0.0) for epoch in epochs) for name in names}


def _peak(run: Run) -> float:
    held = [] if run.traffic is None else [run.traffic.memory(rank) for rank in run.traffic.ranks]
    found = [each for each in (*held, words.number(run.summary.get("peak_memory_bytes"))) if each is not None]
    return max(found, default=0.0)


def _ratio(planned: float, measured: float) -> str:
    return f"{measured / planned:.3g}" if planned > 0 and math.isfinite(measured) else ""


def _of(told: Mapping[str, Any], name: str) -> float:
    return words.number(told.get(name)) or 0.0


def _read(run: Run) -> dict[str, Any] | None:
    try:
        return dict(read_json(run.folder / FILE, {"seconds_by_phase": {}}))
    except FormatError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
