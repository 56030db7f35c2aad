"""What a run has come to so far, and at its end, as others see it: by its folder."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from weft.events import Event, read_events


def events(out: Path, kind: str) -> list[Event]:
    """Return the events of a kind of a run that may go on: a line that is not whole yet is left out."""
    path = out / "events.jsonl"
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [event for event in found if event["event"] == kind]


def until(
    condition: Callable[[], bool],
    *,
    running: Callable[[], bool],
    told: Callable[[], object],
    patience: float,
    pause: float,
) -> None:
    """Wait until something holds of a run that goes on; what was `told` explains why it does not."""
    deadline = time.monotonic() + patience
    while not condition():
        assert running(), told()
        assert time.monotonic() < deadline, told()
        time.sleep(pause)


def came_to(out: Path) -> tuple[list[float], bytes]:
    """Return all losses and the weights of a run."""
    losses = [event["loss"] for event in read_events(out) if event["event"] == "epoch"]
    return losses, (out / "model.safetensors").read_bytes()
