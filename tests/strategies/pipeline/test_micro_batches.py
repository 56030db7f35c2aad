"""Micro-batches: shares of a step, which all stages draw alike, each no further than it must."""

from threading import Event
from typing import Any

import torch
from halo_jobs import graph_of

from weft.graph.parts.shard import Shard, make_shards
from weft.samplers.loader import PreparingPool
from weft.strategies.minibatch.neighbours import DrawSettings
from weft.strategies.pipeline.growth import BatchSize, Growth
from weft.strategies.pipeline.micro_batches import MicroBatches, OwnBatches


def batches(fanout: list[int], **options: Any) -> MicroBatches:
    graph = graph_of("directed")
    shard = Shard.merge(make_shards(graph, (torch.arange(graph.num_nodes) % 2).int()))
    drawing = DrawSettings("neighbor", {"seed": 3}, batch_size=10, threads=0)
    given = {"micro": 3, "sizes": BatchSize(10, None), "features": True} | options
    return MicroBatches(shard, torch.arange(25), fanout, drawing, **given)


def test_shares_are_the_seeds_of_a_step_and_none_is_empty() -> None:
    made = batches([2, 2])
    assert made.seek(0) == 3
    assert [len(share) for share in made.shares(0, 0)] == [4, 3, 3]
    every = torch.cat([share for step in range(3) for share in made.shares(0, step)])
    assert sorted(every.tolist()) == list(range(25))
    assert len(batches([2], micro=50).shares(0, 2)) == 5


def test_a_later_stage_draws_the_last_blocks_of_what_the_first_draws() -> None:
    first, last = batches([2, 2, 2]), batches([2], features=False)
    for step in range(3):
        seeds = first.shares(1, step)[0]
        whole, some = first.make(1, step, seeds), last.make(1, step, seeds)
        assert len(some.blocks) == 1
        assert torch.equal(some.blocks[0].src_ids, whole.blocks[-1].src_ids)
        assert torch.equal(some.blocks[0].indptr, whole.blocks[-1].indptr)
        assert torch.equal(some.blocks[0].indices, whole.blocks[-1].indices)
        assert some.x is None
        assert whole.x is not None
        assert torch.equal(some.y, whole.y)  # type: ignore[arg-type]


def test_batches_grow_with_epochs_up_to_the_most() -> None:
    growth = Growth.of({"every": 2, "factor": 1.5, "most": 20})
    made = batches([2], sizes=BatchSize(10, growth))
    assert [made.seek(epoch) for epoch in (0, 1, 2, 4, 9)] == [3, 3, 2, 2, 2]
    assert made.loader.batch_size == 20


def test_a_worker_knows_which_of_its_micro_batches_are_made() -> None:
    """The second of two replicas has the odd ones; here from the tenth on that the pool makes."""
    go_on = Event()

    def made(place: int) -> int:
        assert place == 10 or go_on.wait(30)
        return 100 + place

    with PreparingPool(made, range(10, 13), 1, 3) as pool:
        own: OwnBatches = OwnBatches(pool, 10, 2)
        assert own.look(1) == 110  # type: ignore[comparison-overlap]
        assert [own.there(micro) for micro in (1, 3, 5)] == [True, False, False]
        go_on.set()
        assert own.take(5) == 112  # type: ignore[comparison-overlap]
        assert [own.there(micro) for micro in (1, 3, 5)] == [True, True, False]
    with PreparingPool(made, range(10, 13), 0, 3) as pool:
        assert OwnBatches(pool, 10, 2).there(3), "nobody makes it before it is asked for"
