"""Compiled messages under every layout, on one, two and four ranks."""

import message_jobs
import pytest
from ranks import run_ranks

from weft.comm.group import Group


def test_one_process() -> None:
    assert message_jobs.equal_one_process(Group.alone()) == []


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks(size: int) -> None:
    assert run_ranks(size, message_jobs.equal_one_process) == [[]] * size
