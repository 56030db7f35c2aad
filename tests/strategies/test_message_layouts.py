"""Compiled messages under every layout, on one, two and four ranks."""

from typing import Any

import message_jobs
import pytest
from ranks import run_ranks

from weft.comm.group import Group


def test_one_process() -> None:
    assert message_jobs.equal_one_process(Group.alone()) == []


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks(size: int) -> None:
    assert run_ranks(size, message_jobs.equal_one_process) == [[]] * size


@pytest.fixture(scope="module")
def promises() -> list[dict[str, Any]]:
    return run_ranks(4, message_jobs.promises)


def test_own_attention_sends_no_more_than_the_layer(promises: list[dict[str, Any]]) -> None:
    ranks = [rank["bytes"] for rank in promises]
    for layout in ("halo", "sequential", "grid", "vertex cut"):
        own, layer = (sum(rank[layout][way] for rank in ranks) for way in ("own", "layer"))
        assert layer > 0
        assert own <= layer, layout
        assert [rank[layout]["wrong"] for rank in ranks] == [[]] * 4, layout


def test_a_map_behind_a_mean_sends_what_the_mean_does(promises: list[dict[str, Any]]) -> None:
    for rank in promises:
        assert all(rows == own > 0 for rows, own in rank["means"].values()), rank["means"]


def test_compiled_sums_weigh_what_a_sample_keeps(promises: list[dict[str, Any]]) -> None:
    assert [rank["sampled"] for rank in promises] == [[]] * 4


def test_stages_give_messages_that_are_sums_of_rows(promises: list[dict[str, Any]]) -> None:
    assert [rank["staged"] for rank in promises] == [[]] * 4
