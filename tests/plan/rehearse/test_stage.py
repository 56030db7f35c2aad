"""Threads as ranks: groups that answer as groups of processes do."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from weft.comm.group import Group
from weft.errors import WorkerLost
from weft.plan.rehearse.fakes import fake_mode
from weft.plan.rehearse.stage import RehearsalStage


def on_ranks(size: int, job: Callable[[Group], Any]) -> list[Any]:
    stage, found = RehearsalStage(size), [None] * size

    def play(rank: int) -> None:
        try:
            found[rank] = job(stage.group(rank))
        except BaseException as error:
            stage.fail(error)

    threads = [threading.Thread(target=play, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    if stage.failure is not None:
        raise stage.failure
    return found


def every_call(group: Group) -> list[Any]:
    me = group.rank
    rows = torch.full((3, 2), float(me))
    found: list[Any] = [group.all_gather(rows).wait()[:, 0].tolist()]
    found.append(group.all_to_all(torch.tensor([me, me, me + 10]), [1, 1, 1], [1, 1, 1]).wait().tolist())
    found.append(int(group.all_reduce(torch.tensor(me)).wait()))
    found.append(int(group.all_reduce(torch.tensor(me), "max").wait()))
    found.append(int(group.broadcast(torch.tensor([me]), 1)))
    found.append(group.all_gather_json({"rank": me}))
    part = group.subgroup([0, 2]) if me != 1 else None
    found.append(None if part is None else int(part.all_reduce(torch.tensor(me)).wait()))
    if me == 0:
        group.send(torch.tensor([7]), 2)
    if me == 2:
        found.append(group.receive(torch.tensor([0]), 0).tolist())
    group.agree(same=1)
    return found


def test_every_call_gives_what_it_gives_among_processes() -> None:
    first, second, third = on_ranks(3, every_call)
    assert first[0] == [0.0] * 3 + [1.0] * 3 + [2.0] * 3
    assert (first[1], third[1]) == ([0, 1, 2], [10, 11, 12])
    assert second[2:5] == [3, 2, 1]
    assert second[5] == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
    assert (first[6], second[6]) == (2, None)
    assert third[7] == [7]


def test_rows_without_values_are_counted_as_those_with() -> None:
    def job(group: Group) -> tuple[int, int]:
        rows = fake_mode().from_tensor(torch.ones(4, 8))
        got = group.all_to_all(rows, [2, 2], [2, 2]).wait()
        assert list(got.shape) == [4, 8]
        return group.ledger.bytes_sent, group.ledger.messages

    assert on_ranks(2, job) == [(64, 1), (64, 1)]


def test_a_rank_that_fails_ends_the_waits_of_all() -> None:
    def job(group: Group) -> None:
        if group.rank == 1:
            raise ValueError("mine")
        with pytest.raises(WorkerLost):
            group.barrier()

    with pytest.raises(ValueError, match="mine"):
        on_ranks(2, job)
