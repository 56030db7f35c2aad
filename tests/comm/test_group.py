"""Calls among ranks: what arrives, what is counted, who is named."""

import os
from typing import Any

import comm_jobs
import pytest
import torch
from ranks import run_ranks

from weft.comm import Group
from weft.comm.link import Link
from weft.errors import InputError

SIZES = [2, 4]


@pytest.mark.parametrize("size", SIZES)
def test_rows_go_where_the_counts_say(size: int) -> None:
    ledgers = run_ranks(size, comm_jobs.moves)
    sent = {
        (rank, entry["peer"]): entry["bytes_sent"]
        for rank, ledger in enumerate(ledgers)
        for entry in ledger["volumes"]
        if (entry["kind"], entry["slot"]) == ("halo", 1)
    }
    # Rank r sends s rows of two bytes to each other rank s.
    others = {(r, s): 2 * s for r in range(size) for s in range(size) if r != s}
    assert {pair: volume for pair, volume in sent.items() if volume} == {
        pair: volume for pair, volume in others.items() if volume
    }


@pytest.mark.parametrize("size", SIZES)
def test_collectives_give_sums_rows_and_words(size: int) -> None:
    run_ranks(size, comm_jobs.words)


def test_a_group_of_one_answers_every_call_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with Group.connect() as group:
        assert (group.rank, group.size) == (0, 1)
        comm_jobs.moves(group)
        comm_jobs.adjoints(group)
        comm_jobs.halo(group, "random", 2, scattered=False)
        assert group.all_gather_json({"a": 1}) == [{"a": 1}]
        assert torch.equal(group.reduce_scatter(torch.ones(2), [2]).wait(), torch.ones(2))
        group.agree(recipe="x")
        group.barrier()
        group.drain()
        assert group.ledger.bytes_sent == 0
        group.close()


def test_subgroups_form_the_rows_and_columns_of_a_grid() -> None:
    assert run_ranks(4, comm_jobs.grid) == [[1, 2, 0], [1, 4, 1], [5, 2, 2], [5, 4, 3]]


class Waited:
    """Work under way that tells whether it was waited for."""

    done = False

    def wait(self) -> None:
        self.done = True


def test_drain_waits_for_what_subgroups_sent_too() -> None:
    def link() -> Any:
        nothing: Any = None
        return Link(nothing, nothing, nothing, nothing, nothing, timeout=1.0, whole=False)

    group = Group(0, range(2), link=link())
    group._parts[("rows", (0, 1))] = link()
    sent: list[Any] = [Waited(), Waited()]
    for held, work in zip((group._link, group.subgroup([0, 1])._link), sent):
        held.in_flight.append(work)
    group.drain()
    assert [work.done for work in sent] == [True, True]
    assert not group._link.in_flight


@pytest.mark.parametrize("name", ["WEFT_TIMEOUT", "WEFT_STALL", "WEFT_JOIN"])
def test_seconds_that_are_no_number_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    given = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", name: "abc"}
    for each, value in given.items():
        monkeypatch.setenv(each, value)
    with pytest.raises(InputError, match=f"{name} must be a number of seconds"):
        Group.connect()


def test_a_fact_that_differs_is_named_with_both_ranks_on_every_rank() -> None:
    for message in run_ranks(2, comm_jobs.disagree):
        assert "ranks disagree on partition" in message
        assert 'rank 0 has "one"' in message
        assert 'rank 1 has "other"' in message


def test_a_rank_that_is_alive_but_late_is_named() -> None:
    answers = run_ranks(2, comm_jobs.late, timeout=2.0)
    assert answers[0][0] == 1
    assert "rank 1 is alive but did not join all_reduce" in answers[0][1]


def test_survivors_name_the_rank_that_raised_and_its_error() -> None:
    for rank, message in run_ranks(4, comm_jobs.raises)[:3]:
        assert rank == 3
        assert "rank 3 raised ValueError: bad weights" in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"RANK": "2"}, "ranks are 0 … 1"),
        ({"RANK": "one"}, "RANK must be a number, got 'one'"),
        ({"MASTER_PORT": None}, "MASTER_PORT is not"),
    ],
)
def test_a_wrong_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str | None], words: str
) -> None:
    given = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in {**given, **changes}.items():
        monkeypatch.setenv(name, value) if value is not None else monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match=words):
        Group.connect()
    assert "GLOO_SOCKET_IFNAME" not in os.environ
