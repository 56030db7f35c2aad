"""The exact exchange: every halo row arrives, every gradient returns."""

import exchange_jobs
import pytest
from ranks import run_ranks


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_halo_row_arrives_in_halo_order(size: int) -> None:
    for ids, rows, _ in run_ranks(size, exchange_jobs.rows_of, "exact"):
        assert rows == ids
        assert bool(ids) == (size > 1)
