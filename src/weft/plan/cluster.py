"""cluster.toml: machines that are not here, the links between them, and what an hour of one costs.

Prices are those of `train.prices`, in the same sections: one file serves the plan and the run.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from weft.config import Range, bind
from weft.errors import RecipeError
from weft.plan.machine import Machine
from weft.reading.toml_values import parse_toml
from weft.sizes import parse_bytes
from weft.train.saved.prices import Prices, prices_of

_SPEED = re.compile(r"(\d+\.?\d*)\s*([kMG])bit(?:/s)?")
_UNITS = {"k": 1e3, "M": 1e6, "G": 1e9}


class Machines:
    """The section [machine]: `count` alike machines, with so many cores and so much memory each."""

    def __init__(
        self,
        *,
        count: Annotated[int, Range(least=1)] = 1,
        cores: Annotated[int, Range(least=1)],
        memory: int | str,
        racks: Annotated[int, Range(least=1)] = 1,
        gpus: Annotated[int, Range(least=0)] = 0,
        speed: Annotated[float, Range(above=0)] = 1.0,
    ) -> None:
        """`speed` is that of a core against one of the machine that was measured."""


class LinkSection:
    """The sections [within_rack] and [between_racks]."""

    def __init__(self, *, bandwidth: str, latency: Annotated[float, Range(least=0)] = 1e-4) -> None:
        """`bandwidth` as "10Gbit", `latency` in seconds."""


@dataclass(frozen=True)
class Cluster:
    """Machines and links as a file describes them."""

    machines: dict[str, Any]
    workers: int
    """Of one machine."""
    prices: Prices | None
    within: dict[str, Any] | None
    between: dict[str, Any] | None

    def machine(self, here: Machine, workers: int) -> Machine:
        """Return what each of so many workers on the cluster does, by the rates that were measured here."""
        told, each = self.machines, self.workers
        count = -(-workers // each)
        if count > told["count"]:
            raise RecipeError(
                f"machine.count: {workers} workers at {each} a machine take {count} machines, there are "
                f"{told['count']}"
            )
        rates, shared = (
            {name: rate / told["speed"] for name, rate in held.items()}
            for held in (here.rates, here.shared_rates)
        )
        return replace(
            here,
            rates=rates,
            shared_rates=shared,
            cores=told["cores"],
            memory=parse_bytes(told["memory"], "machine.memory"),
            prices=self.prices or here.prices,
            workers_each=each,
        )


def read_cluster(path: str | Path) -> Cluster:
    """Return the cluster that a file describes; refuse what it cannot mean, in one line."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read: {error.strerror}") from None
    told = parse_toml(data, str(path))
    known = ("machine", "cluster", "within_rack", "between_racks")
    for name in told:
        if name not in known or not isinstance(told[name], dict):
            raise RecipeError(f"{path}: unknown section [{name}]; known: {', '.join(known)}")
    if "machine" not in told:
        raise RecipeError(f"{path}: expected a section [machine] with cores and memory")
    for name in ("cores", "memory"):
        if name not in told["machine"]:
            raise RecipeError(f"{path}: machine.{name} is missing")
    machines = {**_DEFAULTS, **bind(Machines, told["machine"], "machine")}
    if machines["gpus"]:
        raise RecipeError(
            "machine.gpus: the seconds of a GPU are not measured yet; plan its cores, or leave gpus out"
        )
    parse_bytes(machines["memory"], "machine.memory")
    links = [_link(told.get(name), name) for name in ("within_rack", "between_racks")]
    if links[0] is None and machines["count"] > 1:
        raise RecipeError(f"{path}: machines that are joined need [within_rack] with a bandwidth")
    return Cluster(machines, *_workers_and_prices(told, data, path, machines["cores"]), *links)


def _workers_and_prices(
    told: dict[str, Any], data: bytes, path: str | Path, cores: int
) -> tuple[int, Prices | None]:
    """Return the workers of one machine, a core each where nothing is said, and what it costs."""
    section = told.get("cluster", {})
    for name in section:
        if name not in ("machine", "workers", "prices"):
            raise RecipeError(f"{path}: unknown key cluster.{name}; known: machine, workers, prices")
    if "prices" in section or "machine" in section:
        if "workers" not in section:
            raise RecipeError(f"{path}: cluster.workers is missing: the workers of one machine")
        prices = prices_of(told, data, str(path))
        return prices.workers, prices
    workers = section.get("workers", cores)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise RecipeError(f"{path}: cluster.workers is {workers!r}; give the workers of one machine")
    return workers, None


_DEFAULTS = {
    "count": 1,
    "racks": 1,
    "gpus": 0,
    "speed": 1.0,
}


def _link(section: Any, name: str) -> dict[str, Any] | None:
    if section is None:
        return None
    if "bandwidth" not in section:
        raise RecipeError(f"{name}.bandwidth is missing; give it as 10Gbit")
    link = {"latency": 1e-4, **bind(LinkSection, section, name)}
    bytes_a_second(link["bandwidth"], f"{name}.bandwidth")
    return link


def bytes_a_second(given: str, where: str = "bandwidth") -> float:
    """Return the bytes a second of a link.

    >>> bytes_a_second("10Gbit"), bytes_a_second("100 Mbit/s")
    (1250000000.0, 12500000.0)
    """
    found = _SPEED.fullmatch(str(given).strip())
    if not found or not float(found[1]):
        raise RecipeError(f"{where}: expected a speed such as 100Mbit or 10Gbit, got {given!r}")
    return float(found[1]) * _UNITS[found[2]] / 8
