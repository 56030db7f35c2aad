"""Real runs whose traffic a rehearsal is held to, several in one start of ranks."""

from pathlib import Path
from typing import Any

from weft.comm.group import Group
from weft.config import make_recipe
from weft.train.trainer import Place
from weft.train.workers.worker import prepare, run_worker

SMALL = {"data": {"name": "community", "nodes": 240, "features": 12, "degree": 8.0}, "train": {"epochs": 3}}


def recipe(model: dict[str, Any], strategy: dict[str, Any]) -> Any:
    """Return a recipe on a small graph that is cut without a partitioner of its own process."""
    by = {} if strategy["name"] == "vertex_cut" else {"partitioner": "hash"}
    return make_recipe({**SMALL, "model": {"hidden": 8, **model}, "strategy": {**by, **strategy}})


def traffic(group: Group, out: Path, cases: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[Any]:
    """Return what this rank sent in every epoch of every case: (kind, slot, direction, peer) to counts."""
    found = []
    for number, (model, strategy) in enumerate(cases):
        asked, folder = recipe(model, strategy), out / str(number)
        group.prepare(lambda asked=asked, folder=folder: prepare(asked, folder, workers=group.size))
        run_worker(asked, Place(out=folder), group)
        group.barrier()
        group.ledger.clear()
        found.append(volumes(read(folder, group.rank)))
    return found


def read(folder: Path, rank: int) -> list[dict[str, Any]]:
    """Return the events of traffic that a rank of a run left."""
    from weft.events import read_events

    name = "events.jsonl" if rank == 0 else f"events-rank{rank}.jsonl"
    return [event for event in read_events(folder / name) if event["event"] == "traffic"]


def volumes(events: list[dict[str, Any]]) -> list[dict[str, list[int]]]:
    """Return the bytes and messages of every epoch, by purpose and peer."""
    return [
        {
            f"{each['kind']} {each['slot']} {each['direction']} {each['peer']}": [
                each["bytes_sent"],
                each["messages_sent"],
                each["bytes_received"],
                each["messages_received"],
            ]
            for each in event["volumes"]
        }
        for event in events
    ]
