"""Runs whose parts are dealt otherwise: importable by name by other processes."""

import json
from pathlib import Path
from typing import Any

from weft.comm.group import Group
from weft.config import make_recipe
from weft.train.trainer import Place
from weft.train.workers.placed import DEAL
from weft.train.workers.worker import run_worker


def dealt_in_all_ways(group: Group, parts: str, out: str) -> dict[str, Any]:
    """Train on parts in order, as a file deals them, and by measured links; return losses and deals."""
    found = {"usual": _trained(group, parts, Path(out) / "usual", "exact")}
    found["sampled"] = _trained(group, parts, Path(out) / "sampled", "sampled")
    _deal(group, parts, [0, 1, 1, 0])
    found["dealt"] = _trained(group, parts, Path(out) / "dealt", "exact")
    _deal(group, parts, [1, 1, 0, 0])
    found["turned"] = _trained(group, parts, Path(out) / "turned", "sampled")
    # A run that is continued keeps its own.
    found["continued"] = _trained(group, parts, Path(out) / "dealt", "exact", resume=True, epochs=4)
    found["measured"] = _trained(group, parts, Path(out) / "measured", "exact", placement="measured")
    return found


def _deal(group: Group, parts: str, deal: list[int]) -> None:
    group.barrier()
    if group.rank == 0:
        (Path(parts) / DEAL).write_text(json.dumps({"workers": 2, "part_rank": deal}))
    group.barrier()


def _trained(
    group: Group, parts: str, out: Path, exchange: str, resume: bool = False, **train: Any
) -> tuple[list[float], list[int] | None]:
    sections = {
        "data": {"path": parts},
        "model": {"name": "sage", "hidden": 4},
        "strategy": {"exchange": {"name": "sampled", "p": 0.5} if exchange == "sampled" else exchange},
        "train": {"epochs": 3, "precision": "float64", **train},
    }
    losses: list[float] = []

    def hear(event: Any) -> None:
        if event["event"] == "epoch":
            losses.append(event["loss"])

    run_worker(make_recipe(sections), Place(out=out, resume=resume, progress=hear), group)
    group.barrier()
    return losses, json.loads((out / "run.json").read_text())["recipe"]["graph"].get("part_rank")
