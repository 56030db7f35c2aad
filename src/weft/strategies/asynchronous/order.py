"""The order of a free-running run: what every interval read, told so that a replay gives the same bits.

One file per worker, one JSON list per line in the order in which things happened: ["enter", interval, epoch,
version of the weights], ["read", interval, epoch, epochs of the rows of each source], ["update", epoch].
What is read settles every number of a run, so these lines are enough.
"""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.errors import FormatError, RecipeError
from weft.reading.bounds import expect_room
from weft.reading.damage import reading
from weft.reading.json_values import WholeNumber, expect_shape, parse_json

_HEAD = {
    "workers": WholeNumber(1),
    "rank": WholeNumber(),
    "intervals": WholeNumber(1),
    "staleness": WholeNumber(),
    "seed": WholeNumber(-(2**62)),
}
_EPOCH = WholeNumber(0, 2**31)
_LINES = {"enter": 4, "read": 4, "update": 2}


def file_of(folder: Path, rank: int) -> Path:
    """Return where a worker's order lies in the folder of orders."""
    return folder / f"rank-{rank}.jsonl"


class Order:
    """What an earlier run read, from the file of one worker."""

    def __init__(self, path: Path, head: dict[str, int]) -> None:
        self.path = path
        self._versions: dict[tuple[int, int], int] = {}
        self._reads: dict[tuple[int, int], list[list[int]]] = {}
        lines = iter(_lines(path))
        told = parse_json(next(lines, ""), path, _HEAD)
        for name, value in head.items():
            if told[name] != value:
                raise RecipeError(
                    f"strategy.replay: {path} is of a run with {name} = {told[name]}, this one has {value}; "
                    "replay with the same recipe and workers"
                )
        for number, line in enumerate(lines, 2):
            self._take(_event(line, f"{path}: line {number}"))

    def version(self, interval: int, epoch: int) -> int:
        """Return the version of the weights that an interval began an epoch with."""
        found = self._versions.get((interval, epoch))
        if found is None:
            raise FormatError(
                f"{self.path}: ends before epoch {epoch + 1} of interval {interval}; train for fewer epochs"
            )
        return found

    def read(self, interval: int, epoch: int, place: int) -> Sequence[int]:
        """Return the epochs of the rows in the read of that place among those of an epoch."""
        held = self._reads.get((interval, epoch), [])
        if place >= len(held):
            raise FormatError(
                f"{self.path}: ends within epoch {epoch + 1} of interval {interval}; train for fewer epochs"
            )
        return held[place]

    def _take(self, event: list[Any]) -> None:
        if event[0] == "enter":
            self._versions[event[1], event[2]] = event[3]
        elif event[0] == "read":
            self._reads.setdefault((event[1], event[2]), []).append(event[3])


class OrderLog:
    """Writes the order of this run, one line per event, as it happens; without a folder it writes nothing."""

    def __init__(self, folder: Path | None, head: dict[str, int], *, since: int) -> None:
        """`since`: events of earlier epochs, which a run that is continued has told before, are kept."""
        self._lock = threading.Lock()
        self._file = None
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        path = file_of(folder, head["rank"])
        kept = _before(path, since) if since and path.exists() else []
        self._file = path.open("w", encoding="utf-8")
        for line in [json.dumps(head), *kept]:
            self._file.write(line + "\n")

    def write(self, *event: Any) -> None:
        """Tell of an event."""
        if self._file is not None:
            with self._lock:
                self._file.write(json.dumps(event) + "\n")

    def flush(self) -> None:
        """Hand all lines to the system."""
        if self._file is not None:
            with self._lock:
                self._file.flush()

    def close(self) -> None:
        """End the file."""
        if self._file is not None:
            with self._lock:
                self._file.close()
                self._file = None


def _before(path: Path, since: int) -> list[str]:
    """Return the lines of earlier epochs; the last may have been cut short."""
    kept = []
    for line in _lines(path)[1:]:
        try:
            event = _event(line, path)
        except FormatError:
            break
        if event[1 if event[0] == "update" else 2] < since:
            kept.append(line)
    return kept


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise FormatError(
            f"{path}: no such file; strategy.replay is the folder `order` of a run, on all workers"
        )
    expect_room(4 * path.stat().st_size, path, "the order of a run")
    with reading(path):
        return path.read_text(encoding="utf-8").splitlines()


def _event(line: str, where: Path | str) -> list[Any]:
    event: list[Any] = parse_json(line, where, list)
    if not event or not isinstance(event[0], str) or _LINES.get(event[0]) != len(event):
        raise FormatError(f"{where}: expected an event of {', '.join(_LINES)}, got {line[:60]!r}")
    numbers = event[1:3] if event[0] == "read" else event[1:]
    expect_shape(numbers, [_EPOCH], where)
    if event[0] == "read":
        expect_shape(event[3], [_EPOCH], where)
    return event
