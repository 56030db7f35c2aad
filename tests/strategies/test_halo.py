"""The halo strategy: any number of ranks takes the steps of one process."""

import halo_jobs
import pytest
from ranks import run_ranks


@pytest.mark.parametrize("size", [1, 2, 4])
def test_any_number_of_ranks_takes_the_steps_of_one_process(size: int) -> None:
    for wrong in run_ranks(size, halo_jobs.equal_to_one_process):
        assert wrong == []
