"""Which worker holds which part: dealt in order, as a file beside the parts says, or by the speed of links.

Parts are not ranks: who holds a part changes which links its rows cross, and nothing of what is computed but
the order in which gradients of workers are added.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.plan import spread
from weft.comm.probe import measure
from weft.comm.topology import LinkMap, best_deal
from weft.config import parameters
from weft.errors import FormatError, RecipeError
from weft.events import dumps
from weft.format import atomic_write
from weft.graph.parts.partition import read_partition, read_shard
from weft.reading.json_values import WholeNumber, read_json
from weft.strategies.base import strategies
from weft.train.saved.run_folder import read_run
from weft.train.trainer import Place

if TYPE_CHECKING:
    from weft.train.resolve import Resolved

DEAL = "deal.json"
"""Beside the parts of a partition: who should hold each, of so many workers."""
MEASURED = "measured"
_WORTH = 0.9  # another place for parts must save a tenth: measured speeds are never quite equal


def placed(resolved: "Resolved", parts: Path, place: Place, group: Group) -> dict[str, Any]:
    """Return who holds which part, and the speed of links where the exchange goes by it; else nothing.

    LinkMap are measured once in a run and kept in its folder: a run that is continued goes on with them, and
    with its own deal.
    """
    by_speed = _goes_by_speed(resolved)
    if group.size == 1 or place.handover is not None or not (by_speed or knows_deals(resolved)):
        return {}
    placement: dict[str, Any] = {}
    if by_speed or resolved.settings.placement == MEASURED:
        speed = _speed(place, group)
        placement["part_rank"] = arrange(parts, speed, group)
        if by_speed:
            placement["speed"] = speed
    elif (dealt := dealt_in(parts, group.size)) is not None:
        placement["part_rank"] = dealt
    if place.resume or group.attempt > 0:
        _keep(placement, place, group)
    return placement


def knows_deals(resolved: "Resolved") -> bool:
    """Return whether any worker may hold any part: not where parts are arranged in a grid or in stages."""
    return resolved.records is None and "part_rank" in parameters(strategies[resolved.strategy])


def check_placement(resolved: "Resolved", workers: int) -> None:
    """Refuse a placement by measured links where parts cannot be dealt by them."""
    if resolved.settings.placement != MEASURED or workers == 1:
        return
    if not knows_deals(resolved):
        able = ", ".join(name for name in strategies.names() if "part_rank" in parameters(strategies[name]))
        raise RecipeError(
            f"train.placement: {resolved.strategy!r} says itself who holds which part; use one of {able}, or "
            "leave placement out"
        )
    if resolved.strategy_options.get("samplers"):
        raise RecipeError(
            "train.placement: workers that only sample know no measured links; leave strategy.samplers out, "
            "or deal the parts beforehand: weft partition GRAPH --cluster cluster.toml"
        )


def dealt_in(folder: Path, workers: int) -> list[int] | None:
    """Return who holds each part as the file beside them says; None where it is for other workers."""
    file = folder / DEAL
    if not file.is_file():
        return None
    record = read_json(file, {"workers": WholeNumber(), "part_rank": [WholeNumber()]})
    if record["workers"] != workers:
        return None
    deal: list[int] = record["part_rank"]
    if len(deal) != read_partition(folder).num_parts or {*deal} != {*range(workers)}:
        raise FormatError(
            f"{file}: expected one of {workers} workers for each part, and a part for each; deal them anew "
            "with weft partition --cluster, or delete the file"
        )
    return deal


def dealt(folder: Path, workers: int) -> list[int]:
    """Return who holds each part: as the file beside them says, else in order."""
    return dealt_in(folder, workers) or spread(read_partition(folder).num_parts, workers)


def arrange(folder: Path, speed: Tensor, group: Group) -> list[int]:
    """Return who should hold each part, so that the slowest link between ranks ends first."""
    count = read_partition(folder).num_parts
    usual = spread(count, group.size)
    read = torch.zeros(count, count, dtype=torch.float64)
    for part, owner in enumerate(usual):
        if owner == group.rank:
            shard = read_shard(folder, part, verify=False)  # `read_parts` verifies what will be trained on
            read[part] = torch.bincount(shard.halo_part.long(), minlength=count)
    group.all_reduce(read, label=Label("plan")).wait()
    rows = read.numpy()  # what a part reads comes to it, and gradients of it go back
    return best_deal(rows + rows.T, LinkMap.of_pairs(speed.numpy()), usual, worth=_WORTH)


def _goes_by_speed(resolved: "Resolved") -> bool:
    exchange = resolved.strategy_options.get("exchange")
    return isinstance(exchange, Mapping) and "auto" in exchange.values()


def _keep(placement: dict[str, Any], place: Place, group: Group) -> None:
    """Put the deal of the run that is continued in the place of another, if as many workers had one."""
    kept = group.all_gather_json(_of_run(place, group.size) if group.rank == 0 else None)[0]
    if kept is not None:
        placement.pop("part_rank", None)
        placement |= kept


def _of_run(place: Place, workers: int) -> dict[str, Sequence[int]] | None:
    """Return the deal of the run in the folder, empty where it had the usual one; None without such a run."""
    if place.out is None or not (Path(place.out) / "run.json").exists():
        return None
    graph = read_run(place.out)["recipe"].get("graph", {})
    if graph.get("workers") != workers:
        return None
    return {"part_rank": graph["part_rank"]} if graph.get("part_rank") is not None else {}


def _speed(place: Place, group: Group) -> Tensor:
    """Return the bytes a second between workers: as the run has them, else measured now."""
    file = None if place.out is None else Path(place.out) / "links.json"
    speeds = group.all_gather_json(_read_speed(file) if group.rank == 0 else None)[0]
    fits = speeds is not None and len(speeds) == group.size
    speed = torch.tensor(speeds, dtype=torch.float64).fill_diagonal_(torch.inf) if fits else measure(group)
    if file is not None and not fits and group.rank == 0:
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, dumps({"bytes_a_second": speed.nan_to_num(posinf=0.0).tolist()}).encode())
    return speed


def _read_speed(file: Path | None) -> Any:
    try:
        return None if file is None else json.loads(file.read_text(encoding="utf-8"))["bytes_a_second"]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # measured again
