"""What a run cost, by the user's own table of prices: no price is known here.

[cluster]
machine = "large"        # what the workers ran on, by its name in the table
workers = 2              # of one machine; 1 where nothing is said

[cluster.prices]
date = "2026-11-01"      # of the day that the table is of
large = 0.17             # dollars an hour of one machine
small = 0.09
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from weft.errors import RecipeError
from weft.events import Event, read_events
from weft.reading.toml_values import parse_toml
from weft.registry import suggest

_CLUSTER, _PRICES = "[cluster]", "[cluster.prices]"


def value_of(seconds: float, dollars: float) -> float | None:
    """Return 1 / (time x cost), None where one of them is nothing."""
    return 1.0 / (seconds * dollars) if seconds * dollars > 0 else None


def spans_of(events: Sequence[Event], now: float) -> list[tuple[float, int]]:
    """Return how long a run had how many workers, from its events, until now; empty where they stayed."""
    changes = [(event["time"], len(event["workers"])) for event in events if event["event"] == "generation"]
    begun = [0.0, *(when for when, _ in changes[1:])]
    ended = [*begun[1:], now]
    return [(max(stop - start, 0.0), count) for start, stop, (_, count) in zip(begun, ended, changes)]


@dataclass(frozen=True)
class Prices:
    """A machine and its price in a dated table."""

    machine: str
    workers: int
    """Of one machine."""
    hour: float
    """Dollars an hour of one machine."""
    date: str
    sha256: str
    """Of the file, as it was read."""

    def cost(self, seconds: float, workers: int) -> dict[str, Any]:
        """Return what so many workers cost in some seconds, and the value 1 / (time x cost)."""
        return self.cost_of([(seconds, workers)])

    def cost_of(self, spans: Sequence[tuple[float, int]]) -> dict[str, Any]:
        """Return what a run cost that had other numbers of workers in turn: seconds and workers of each."""
        machines = [-(-workers // self.workers) for _, workers in spans]
        dollars = sum(count * self.hour * seconds / 3600 for count, (seconds, _) in zip(machines, spans))
        cost = {"machine": self.machine, "machines": max(machines), "hour": self.hour}
        value = value_of(sum(seconds for seconds, _ in spans), dollars)
        return {"dollars": dollars, "value": value, **cost, "date": self.date, "sha256": self.sha256}


def cost_of_run(
    prices: Prices | None, seconds: float, workers: int, folder: str | Path | None
) -> dict[str, Any] | None:
    """Return what a run cost so far, by the workers that its events tell of; None without prices."""
    if prices is None:
        return None
    spans = [] if folder is None else spans_of(read_events(folder), seconds)
    return prices.cost_of(spans or [(seconds, workers)])


def read_prices(path: str | Path) -> Prices:
    """Return what a file says of prices, or refuse it in one line."""
    where = f"train.prices: {path}"
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise RecipeError(f"train.prices: cannot read {path}: {error.strerror}") from None
    return prices_of(parse_toml(data, where), data, where)


def prices_of(read: dict[str, Any], data: bytes, where: str) -> Prices:
    """Return what the sections of a file, with these bytes, say of prices; `where` begins every refusal."""
    cluster = read.get("cluster")
    table = cluster.get("prices") if isinstance(cluster, dict) else None
    if not isinstance(cluster, dict) or not isinstance(table, dict):
        raise RecipeError(f"{where}: expected {_CLUSTER} with a machine, and {_PRICES}")
    machine, workers = cluster.get("machine"), cluster.get("workers", 1)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise RecipeError(f"{where}: cluster.workers is {workers!r}; give the workers of one machine")
    known = [name for name in table if name != "date"]
    if not isinstance(machine, str) or machine not in known:
        known_ones = f"{suggest(str(machine), known)}prices: {', '.join(known) or 'none'}"
        raise RecipeError(f"{where}: cluster.machine is {machine!r}; {known_ones}")
    return Prices(machine, workers, _price(table, machine, where), _date(table, where), _hash(data))


def _price(table: dict[str, Any], machine: str, where: str) -> float:
    price = table[machine]
    if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < math.inf:
        raise RecipeError(f"{where}: {machine} is {price!r}; give dollars an hour")
    return float(price)


def _date(table: dict[str, Any], where: str) -> str:
    day = table.get("date")
    try:
        return str(date.fromisoformat(str(day)))
    except ValueError:
        raise RecipeError(
            f'{where}: {_PRICES} has date {day!r}; say of which day it is: date = "2026-11-01"'
        ) from None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
