"""A batch on its way between ranks is the same at its end, to the bit."""

import pytest
import torch
from halo_jobs import graph_of, local_graph
from sampled_jobs import differing

from weft.comm.group import Group
from weft.samplers.workers.parcel import from_bytes, header_size, num_bytes, pack, to_bytes, unpack
from weft.samplers.workers.partitioned import PartitionedSampler


def test_tensors_of_any_type_and_extent_are_read_again() -> None:
    held = [
        torch.tensor([True, False, True]), None, torch.rand(2, 3).half(), torch.zeros(0, 4), torch.tensor(7),
        torch.arange(5, dtype=torch.int16), torch.rand(1, 2, 3, dtype=torch.float64),
    ]  # fmt: skip
    header, data = to_bytes(held, 40)
    assert (header.shape, len(data)) == ((40,), num_bytes(header))
    found = from_bytes(header, data)
    assert len(found) == 10, "what is not there is none"
    for given, read in zip(held, found):
        if given is None:
            assert read is None
            continue
        assert read is not None
        assert (read.dtype, read.shape) == (given.dtype, given.shape)
        assert torch.equal(read, given)


@pytest.mark.parametrize("kind", ["hub", "typed", "sparse"])
def test_a_batch_is_the_one_that_was_sampled(kind: str) -> None:
    graph = graph_of(kind)
    shard = local_graph(Group.alone(), graph, torch.zeros(graph.num_nodes, dtype=torch.int32), 1).shard
    sampler = PartitionedSampler(shard, Group.alone(), [3, 2], seed=5)
    rows = graph.target_rows
    batch = sampler.sample(torch.arange(rows.start or 0, rows.stop or graph.num_nodes)[:6], 2, 7)
    header, data = to_bytes(pack(batch, shard), header_size(2, shard))
    again = unpack(from_bytes(header, data), shard, batch.graph, epoch=2, step=7)
    assert differing(again, batch) == []
    assert (again.epoch, again.step, again.seeds.tolist()) == (2, 7, batch.seeds.tolist())
