"""The halo strategy: any number of ranks takes the steps of one process."""

import halo_jobs
import pytest
from ranks import run_ranks

from weft.comm import Group
from weft.errors import InputError
from weft.strategies.halo.halo import Halo


def test_one_rank_takes_the_steps_of_one_process() -> None:
    names = ["sage max", "gat", "rgcn"]
    assert halo_jobs.equal_to_one_process(Group.alone(), names=names) == []


# The proof of equivalence runs such cases on ranks too; here they are more.
@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 4])
def test_any_number_of_ranks_takes_the_steps_of_one_process(size: int) -> None:
    for wrong in run_ranks(size, halo_jobs.equal_to_one_process):
        assert wrong == []


def test_sampling_everything_is_exact() -> None:
    for wrong in run_ranks(
        2, halo_jobs.equal_to_one_process, {"name": "sampled", "p": 1.0}, ["sage max", "rgcn"]
    ):
        assert wrong == []


@pytest.mark.parametrize("p", [0.4, 0.0])
def test_a_sampled_epoch_drops_edges_and_scales_sums_and_means_alone(p: float) -> None:
    run_ranks(4, halo_jobs.sampled_sums, p)


def test_a_sampled_halo_is_right_in_the_mean_for_every_layer_that_adds_up() -> None:
    pytest.importorskip("torch_geometric")
    import sampling_jobs

    for wrong in run_ranks(2, sampling_jobs.right_in_the_mean):
        assert wrong == []


def test_a_tensor_is_exchanged_once_and_an_input_once_for_ever() -> None:
    for twice, changed, inputs in run_ranks(2, halo_jobs.one_exchange_a_tensor):
        assert (twice, changed, inputs) == (1, 2, 3)


def test_scales_that_are_equal_on_one_rank_alone_are_not_taken_for_one_another() -> None:
    alone = halo_jobs.scales_equal_on_one_rank(Group.alone())
    for losses in run_ranks(2, halo_jobs.scales_equal_on_one_rank, timeout=20.0):
        assert losses == pytest.approx(alone, rel=1e-5)


def test_an_exchange_that_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="no exchange 'telepathy'"):
        Halo.check({"exchange": "telepathy"})
    Halo.check({"exchange": {"name": "sampled", "p": 0.3}})
