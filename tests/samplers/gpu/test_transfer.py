"""What is made on another stream is all found when it is handed over, and streams are shared by threads."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.samplers.core.subgraph import Rows
from weft.samplers.gpu import transfer
from weft.samplers.gpu.transfer import Courier, DeviceDegrees, Mover, tensors_of
from weft.strategies.offload.chunks import Cost, cut


def ring(**data: Any) -> Graph:
    """Return six nodes in a ring, the first joined to all."""
    src = torch.tensor([0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5])
    dst = torch.tensor([1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0])
    mask = torch.tensor([True, True, False, False, False, False])
    return Graph.from_edges(torch.stack([src, dst]), x=torch.rand(6, 2), train_mask=mask, **data)


def found_in(value: Any, *wanted: Tensor) -> bool:
    given = list(tensors_of(value))
    return all(any(each is tensor for each in given) for tensor in wanted)


def test_all_tensors_of_a_subgraph_are_found() -> None:
    rows = Rows(ring())
    nodes, num_seeds = rows.ordered(torch.tensor([4, 0, 2, 1]))
    batch = rows.batch(nodes, num_seeds, rows.edges(nodes))
    batch.weight, batch.rows = torch.rand(num_seeds), torch.arange(num_seeds)
    block = batch.blocks[0]
    assert found_in(batch, batch.nodes, batch.weight, batch.rows, batch.x)
    assert found_in(batch, block.indptr, block.indices, block.edge_ids, *block.transposed)


def test_the_edge_data_of_a_chunk_are_found() -> None:
    graph = ring(edge_attr=torch.rand(11, 3))
    device = torch.device("cpu")
    chunk = next(cut(graph, Cost(1, 1, 1), 1000))
    block = chunk.block(graph, device, DeviceDegrees(graph, device), None)
    assert found_in((chunk, block, [graph.x]), block.edge("attr"), graph.x)


def test_blocks_made_of_a_block_are_looked_at_once() -> None:
    graph = ring(edge_type=torch.arange(11) % 2)
    block = graph.block()
    pairs, one = block.by_relation(), block.relation(1)
    assert found_in(block, pairs.rows, one.indices)


def test_what_operators_remember_with_a_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")
    from weft.kernels.triton import plan

    monkeypatch.setattr(plan, "SEGMENT", 2)
    block = ring().block()
    plans = [plan.plan_of(block.indptr, 11), plan.plan_of(block.transposed.indptr, 11)]
    assert plans[0].num_hubs == 1
    for each in plans:
        assert found_in([block], each.rows, each.starts, each.hubs, each.firsts)


class Emptied(list[Any]):
    """A list that another thread empties between a look at it and `pop`."""

    def __bool__(self) -> bool:
        return True


def test_a_stream_that_another_thread_took_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SimpleNamespace(record_event=lambda: "ready")
    monkeypatch.setattr(transfer, "new_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda given: nullcontext())
    courier = Courier("cpu", ring())
    courier._streams = Emptied()
    assert courier.prepare(lambda: 3) == transfer.Parcel(3, "ready")  # type: ignore[arg-type]
    assert list(courier._streams) == [stream]


class Watched(Block):
    """A block of the user's own: one table that it made, and one that all blocks share."""

    looked_up = Block.looked_up | {"_shared"}

    def __init__(self, shared: Tensor) -> None:
        super().__init__(torch.tensor([0, 1]), torch.tensor([0]), num_src=1)
        self._shared, self._own = shared, torch.rand(3)


def test_a_block_says_itself_what_goes_with_it() -> None:
    shared, away = torch.rand(2), torch.device("meta")
    block = Watched(shared)
    made = Mover(away, DeviceDegrees(ring(), away))(block)
    assert made._shared is shared
    assert (made._own.device, made.indptr.device) == (away, away)
    assert found_in(block, block._own, block.indptr)
    assert not found_in(block, shared)
