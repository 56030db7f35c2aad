"""Loader: every seed once an epoch, the same batches for any number of threads, nothing left behind."""

import time

import pytest
import torch
from loaders import loaded_graph, loader, running

from weft.errors import GraphError, InputError
from weft.samplers import Batch, Loader, NeighborSampler
from weft.samplers.loader import PreparingPool
from weft.samplers.workers.worker_loaders import CollectiveLoader


def parts(batch: Batch) -> list[torch.Tensor]:
    blocks = [value for block in batch.blocks for value in (block.indptr, block.indices, block.edge_ids)]
    assert batch.y is not None
    return [batch.nodes, batch.x, batch.y, *blocks]


def equal(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a, b) for x, y in zip(one, other) for a, b in zip(parts(x), parts(y), strict=True)
    )


def test_every_seed_comes_once_an_epoch_in_another_order() -> None:
    made = loader()
    first, second = (torch.cat([batch.seeds for batch in made]) for _ in range(2))
    assert len(made) == 12
    assert first.sort().values.tolist() == second.sort().values.tolist() == list(range(90))
    assert first.tolist() != second.tolist() != list(range(90))
    assert made.state() == {"epoch": 2, "step": 0}
    plain = loader(shuffle=False, drop_last=True)
    assert torch.cat([batch.seeds for batch in plain]).tolist() == list(range(88))


def test_any_number_of_threads_gives_the_same_batches() -> None:
    expected = list(loader(0))
    for threads in (1, 2, 8):
        assert equal(list(loader(threads)), expected)
    assert not running()


def test_a_run_resumes_in_the_middle_of_an_epoch() -> None:
    whole = loader()
    _, expected = list(whole), list(whole)
    begun = loader()
    list(begun)
    for batch in begun:
        if batch.step == 4:
            break
    assert begun.state() == {"epoch": 1, "step": 5}
    assert not running()
    resumed = loader(1)
    resumed.load_state(begun.state())
    assert equal(list(resumed), expected[5:])
    assert equal(list(begun), expected[5:])


def test_batches_come_as_pyg_data() -> None:
    pytest.importorskip("torch_geometric")
    for data in loader(convert=Batch.to_pyg):
        assert data.x.shape[0] == data.n_id.numel()
        assert data.batch_size <= 8


def test_seeds_are_the_labelled_training_nodes() -> None:
    y, mask = torch.tensor([0, 1] * 50), torch.arange(100) < 10
    y[3] = -1
    sampler = NeighborSampler(loaded_graph().with_data(y=y, train_mask=mask, check=False), [2])
    assert Loader(sampler).seeds.tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    with pytest.raises(GraphError, match="no train_mask"):
        Loader(NeighborSampler(loaded_graph(), [2]))


def test_impossible_settings_are_refused() -> None:
    for options in ({"batch_size": 0}, {"threads": -1}, {"batch_size": 2.5}):
        with pytest.raises(InputError, match="whole number"):
            loader(**{"threads": 1, **options})
    with pytest.raises(InputError, match="no step 99"):
        loader().seek(0, 99)


def test_time_is_accounted_for() -> None:
    made = loader()
    list(made)
    assert made.seconds["prepare"] > 0
    assert made.seconds["wait"] > 0


@pytest.mark.parametrize(
    ("kind", "threads"), [(Loader, 0), (Loader, 2), (CollectiveLoader, 0), (CollectiveLoader, 1)]
)
def test_a_loop_that_runs_goes_on_with_its_epoch_after_a_seek(kind: type[Loader], threads: int) -> None:
    made = kind(
        NeighborSampler(loaded_graph(), [2], seed=7), range(40), batch_size=8, threads=threads, ahead=1
    )
    expected = [made.batch(0, step) for step in range(5)]
    running = iter(made)
    found = [next(running)]
    made.seek(3, 1)
    assert made.state() == {"epoch": 3, "step": 1}
    found += running
    assert equal(found, expected)
    assert made.state() == {"epoch": 1, "step": 0}, "where the loop ended"


def test_a_seed_that_is_there_twice_is_refused_whatever_the_shuffle_does() -> None:
    with pytest.raises(GraphError, match="seed 2 is there twice: an epoch has each seed once"):
        Loader(NeighborSampler(loaded_graph(), [1]), [0, 2, 1, 2], batch_size=1)


def test_threads_prepare_so_many_steps_before_they_are_asked_for_and_no_more() -> None:
    made: list[int] = []
    with PreparingPool(made.append, range(10), 1, ahead=3) as pool:
        pool.get(0)
        until = time.monotonic() + 20
        while len(made) < 3 and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)  # for one too many
        assert made == [0, 1, 2]
