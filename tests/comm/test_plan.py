"""The plan of an exchange: rows arrive where the halo expects them, gradients where they belong."""

import comm_jobs
import pytest
from ranks import run_ranks

from weft.comm.plan import spread
from weft.errors import GraphError


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("kind", "parts_a_rank", "scattered"),
    [("random", 1, False), ("hub", 2, True), ("isolated", 1, True), ("isolated", 2, False)],
)
def test_rows_arrive_in_halo_order_and_gradients_return(
    size: int, kind: str, parts_a_rank: int, scattered: bool
) -> None:
    counts = run_ranks(size, comm_jobs.halo, kind, parts_a_rank, scattered)
    assert all(counts[rank][rank] == 0 for rank in range(size))


@pytest.mark.parametrize(
    ("how", "words"),
    [("sizes", "together, the graph has 30"), ("nodes", "asks rank"), ("map", "asks rank 1")],
)
def test_a_shard_of_another_partition_is_refused(how: str, words: str) -> None:
    answers = run_ranks(2, comm_jobs.foreign_shard, how)
    assert any(words in answer for answer in answers), answers
    assert "accepted" not in answers


def test_parts_are_spread_in_equal_runs() -> None:
    assert spread(6, 4) == [0, 0, 1, 2, 2, 3]
    assert spread(4, 1) == [0] * 4
    with pytest.raises(GraphError, match="2 parts cannot occupy 4 workers"):
        spread(2, 4)
