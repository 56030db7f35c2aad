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
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from weft.errors import RecipeError
from weft.reading.toml_values import parse_toml
from weft.registry import suggest

_CLUSTER, _PRICES = "[cluster]", "[cluster.prices]"


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
        machines = -(-workers // self.workers)
        dollars = machines * self.hour * seconds / 3600
        value = 1.0 / (seconds * dollars) if seconds * dollars > 0 else None
        told = {"machine": self.machine, "machines": machines, "hour": self.hour}
        return {"dollars": dollars, "value": value, **told, "date": self.date, "sha256": self.sha256}


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
        told = f"{suggest(str(machine), known)}prices: {', '.join(known) or 'none'}"
        raise RecipeError(f"{where}: cluster.machine is {machine!r}; {told}")
    return Prices(machine, workers, _price(table, machine, where), _date(table, where), _hash(data))


def _price(table: dict[str, Any], machine: str, where: str) -> float:
    price = table[machine]
    if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < math.inf:
        raise RecipeError(f"{where}: {machine} is {price!r}; give dollars an hour")
    return float(price)


def _date(table: dict[str, Any], where: str) -> str:
    given = table.get("date")
    try:
        return str(date.fromisoformat(str(given)))
    except ValueError:
        raise RecipeError(
            f'{where}: {_PRICES} has date {given!r}; say of which day it is: date = "2026-11-01"'
        ) from None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
