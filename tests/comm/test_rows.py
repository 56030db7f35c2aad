"""Rows by global id: those of a plain index, with gradients at their holders."""

from typing import Any

import comm_jobs
import pytest
import torch
from ranks import run_ranks

from weft.comm import GatheredRows, Group


@pytest.mark.parametrize("size", [2, 4])
def test_rows_and_gradients_are_those_of_an_index_of_the_whole_table(size: int) -> None:
    for layouts in run_ranks(size, comm_jobs.rows_by_id):
        for answer in layouts:
            others, volumes = 30 - answer["held"], answer["moved"]["volumes"]
            assert {each["kind"] for each in volumes} <= {"rows"}
            # Each distinct row travels once, and no id of a plan made before.
            assert received(volumes, "forward") == 16 * others
            assert received(volumes, "backward") == 16 * answer["held"] * (size - 1)
            planned = sum(each["bytes_sent"] for each in answer["planned"]["volumes"])
            assert planned == 8 * (others + size - 1), "the ids, and how many"


def received(volumes: list[dict[str, Any]], direction: str) -> int:
    return sum(each["bytes_received"] for each in volumes if each["direction"] == direction)


def test_one_rank_indexes() -> None:
    for answer in comm_jobs.rows_by_id(Group.alone()):
        assert answer["held"] == 30
        assert answer["moved"]["bytes_sent"] == 0


def test_a_loss_without_rows_still_has_a_gradient() -> None:
    h = torch.ones(3, 2, requires_grad=True)
    GatheredRows(Group.alone(), torch.arange(3))(h, torch.zeros(0, dtype=torch.int64)).sum().backward()
    assert torch.equal(h.grad, torch.zeros(3, 2))


def test_what_nobody_holds_is_refused_by_name() -> None:
    assert comm_jobs.unknown_rows(Group.alone()) == [
        "expected ids 0 … 9, got 10",
        "expected ids 0 … 9, got -1",
        "no rank holds node 3; a part is missing",
        "expected 10 rows, one a node held here, got 9",
    ]
    said = run_ranks(2, comm_jobs.unknown_rows)
    assert "rank 0 asks rank 0 for node 19, which is not there" in said[0][3]
