"""Events: what a run did, one JSON object a line, for machines to read while it runs and after it.

Every event goes to the run's `events.jsonl` and to any number of sinks: a sink is a callable that takes the
event. A line is handed to the system as soon as it is written, so a killed run keeps all of its lines but
perhaps the last; `read_events` steps over a line that was cut short.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from weft.errors import FormatError
from weft.registry import require

Event = dict[str, Any]
Sink = Callable[[Event], None]


class Events:
    """Writes the events of one run. Times are seconds since it began, its earlier sessions included."""

    def __init__(self, path: Path | None = None, *, sinks: Iterable[Sink] = (), elapsed: float = 0.0) -> None:
        self.sinks = list(sinks)
        self.seconds: dict[str, float] = {}
        self._began = time.perf_counter() - elapsed
        self._file: TextIO | None = None
        if path is not None:
            with _told(path):
                self._file = path.open("a", buffering=1, encoding="utf-8")

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self._began

    def write(self, event: str, **fields: Any) -> Event:
        """Record an event with its fields and return it."""
        entry: Event = {"time": round(self.now(), 6), "event": event, **fields}
        if self._file is not None:
            with _told(self._file.name):
                self._file.write(dumps(entry) + "\n")
        self._send(entry)
        return entry

    @contextmanager
    def span(self, name: str, **fields: Any) -> Iterator[None]:
        """Record how long a stage of the run took."""
        start = self.now()
        yield
        self.write("span", name=name, start=round(start, 6), seconds=self.now() - start, **fields)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of a part of an epoch to `seconds`; only sinks see each, so the file stays small."""
        start = self.now()
        yield
        seconds = self.now() - start
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self._send({"time": self.now(), "event": "phase", "name": name, "start": start, "seconds": seconds})

    def take_seconds(self) -> dict[str, float]:
        """Return the seconds of each phase since the last call, and start again from zero."""
        taken, self.seconds = self.seconds, {}
        return taken

    def close(self) -> None:
        """Close the file and every sink that can be closed."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # a full disk: the write that could not be made has told it
                file.close()
        for sink in self.sinks:
            close = getattr(sink, "close", None)
            if close is not None:
                close()

    def _send(self, entry: Event) -> None:
        for sink in self.sinks:
            sink(entry)


class TensorBoard:
    """A sink that writes losses, metrics and seconds for TensorBoard (the extra `tensorboard`)."""

    def __init__(self, folder: Path) -> None:
        require("tensorboard", "tensorboard")
        self.writer = require("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder))

    def __call__(self, event: Event) -> None:
        if event["event"] == "epoch":
            for name, value in _numbers(event):
                self.writer.add_scalar(name, value, event["epoch"])

    def close(self) -> None:
        """Write out what is pending."""
        self.writer.close()


class ChromeTrace:
    """A sink that writes stages and phases as a Chrome trace, for chrome://tracing or Perfetto.

    The file is an array that is closed at the end only; viewers accept one cut short by a killed run. The
    trace of an earlier session of the run is continued: the entries of each carry its process number.
    """

    def __init__(self, path: Path) -> None:
        with _told(path):
            kept = _whole_entries(path)
            self.file = path.open("r+" if kept else "w", buffering=1, encoding="utf-8")
            if kept:
                self.file.truncate(kept)
                self.file.seek(0, os.SEEK_END)
            else:
                self.file.write("[\n")

    def __call__(self, event: Event) -> None:
        if event["event"] in ("span", "phase"):
            place = {"ph": "X", "pid": os.getpid(), "tid": 0}
            when = {"ts": round(event["start"] * 1e6), "dur": round(event["seconds"] * 1e6)}
            with _told(self.file.name):
                self.file.write(dumps({"name": event["name"], **place, **when}) + ",\n")

    def close(self) -> None:
        """End the array."""
        with suppress(OSError):  # a full disk: the trace is then one cut short
            self.file.write(dumps({"name": "weft", "ph": "M", "pid": os.getpid(), "args": {}}) + "]\n")
        with suppress(OSError):
            self.file.close()


def read_events(path: str | Path) -> list[Event]:
    """Return the events of a run's folder or of an events file; a last line cut short is left out."""
    path = Path(path)
    path = path / "events.jsonl" if path.is_dir() else path
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise FormatError(f"cannot read events {path}: {error.strerror}") from None
    events = []
    for number, line in enumerate(lines, start=1):
        event = _event(line)
        if event is not None:
            events.append(event)
        elif number < len(lines):
            raise FormatError(f"{path}, line {number}: not an event; the file is damaged")
    return events


def _event(line: str) -> Event | None:
    """Return the event of a line; None for what is none."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def dumps(value: Any) -> str:
    """Return JSON that any reader accepts: a number that is not finite becomes null."""
    try:
        return json.dumps(value, allow_nan=False, default=str)
    except ValueError:
        return json.dumps(_finite(value), default=str)


@contextmanager
def _told(path: object) -> Iterator[None]:
    """Turn an error of the file system into one line."""
    try:
        yield
    except OSError as error:
        raise FormatError(f"cannot write {path}: {error.strerror}") from None


def _whole_entries(path: Path) -> int:
    """Return how many bytes of a trace are whole entries with more to come; 0 where there is no trace."""
    last = path.read_bytes().rfind(b"},\n") if path.is_file() else -1
    return last + 3 if last >= 0 else 0


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(event: Event, prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in event.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and key not in ("time", "epoch"):
            yield prefix + key, value
