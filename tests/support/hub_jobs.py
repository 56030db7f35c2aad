"""Calls of parts, made on ranks that hold several of them in threads."""

import threading
from collections.abc import Callable
from typing import Any

import torch

from weft.comm.elastic.hub import Hub
from weft.comm.group import Group
from weft.errors import WorkerLost

DEALS = [[0, 0, 0], [0, 1, 0], [2, 1, 0]]


def on_parts(group: Group, deal: list[int], name: str, job: Callable[[Group], Any]) -> dict[int, Any]:
    """Return what a job gave each part that this rank holds."""
    if group.rank not in deal:
        return {}
    assert group._link is not None
    store = group._link.store.within(name)
    hub = Hub(store, group.rank, deal, timeout=10.0)
    results: dict[int, Any] = {}

    def part(number: int) -> None:
        try:
            results[number] = job(Group.of_parts(hub, number))
        except WorkerLost as error:
            results[number] = f"lost: {error}"

    threads = [threading.Thread(target=part, args=(number,)) for number in hub.parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    if name != "fails":
        group.all_gather_json(name) if set(deal) == set(range(group.size)) else None
    hub.close()
    return results


def calls(group: Group) -> list[Any]:
    """One of each call; `counts` are rows from each member (first) to each other."""
    counts = [[1, 2, 0], [0, 1, 3], [2, 0, 1]]
    rows = torch.arange(sum(counts[group.rank])).float()[:, None] + 10 * group.rank
    moved = group.all_to_all(rows, counts[group.rank], [row[group.rank] for row in counts]).wait()
    tenth = torch.tensor([0.1 * 3**group.rank, 1e8 * (group.rank - 1)])
    summed = group.all_reduce(tenth.clone()).wait()
    least = group.all_reduce(tenth.clone(), "min").wait()
    spread = group.broadcast(torch.full((2,), group.rank), 1)
    behind = group.subgroup(group.ranks, purpose="lane").all_reduce(torch.ones(1), background=True)
    words = group.all_gather_json({"part": group.rank})
    pair = group.subgroup([0, 2]).all_gather(rows[:1]).wait().tolist() if group.rank != 1 else None
    letters = written(group)
    group.barrier()
    told = [moved, summed, least, spread, behind.wait()]
    return [*(each.tolist() for each in told), words, pair, letters]


def written(group: Group) -> dict[int, list[list[float]]]:
    """Send each other part two messages of other sizes, and expect theirs in reverse, the first one early."""
    others = [member for member in range(group.size) if member != group.rank]
    lane = group.subgroup(group.ranks, purpose="letters")
    sent = [
        lane.start_send(torch.full((size + 1, 2), 10.0 * group.rank + size), member)
        for size in range(2)
        for member in others
    ]
    coming = {
        member: [lane.start_receive(torch.zeros(size + 1, 2), member) for size in range(2)]
        for member in reversed(others)
    }
    found = {m: [each.wait().flatten().tolist() for each in pending] for m, pending in coming.items()}
    for pending in sent:
        pending.wait()
    return found


def fails(group: Group) -> str:
    group.barrier()
    if group.rank == 1:
        group.abandon(ValueError("no"))
        return "failed"
    group.all_reduce(torch.ones(1)).wait()
    return "went on"


def differ(group: Group) -> str:
    if group.rank:
        group.all_reduce(torch.ones(1)).wait()
    else:
        group.broadcast(torch.ones(1))
    return "went on"


def every(group: Group) -> list[dict[int, Any]]:
    """Return what the calls gave for every deal, and what failures did."""
    found = [on_parts(group, deal, f"calls{deal}", calls) for deal in DEALS]
    found.append(on_parts(group, [0, 0, 1], "fails", fails))
    found.append(on_parts(group, [0, 0], "differ", differ))
    group.barrier()
    return found
