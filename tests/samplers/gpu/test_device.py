"""Sampling on a GPU draws what the CPU draws, bit for bit; without a GPU by Triton's interpreter.

The interpreter's run is begun by tests/kernels/test_triton.py, in a process apart.
"""

import os
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.kernels import gpu
from weft.samplers import NeighborSampler
from weft.samplers.core import reference
from weft.samplers.core.request import Request, Sample, Slots
from weft.samplers.gpu import device

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")

pytestmark = pytest.mark.gpu
DEVICE = os.environ.get("WEFT_TEST_DEVICE", "cpu")
on_triton = pytest.mark.skipif(
    not (gpu.INTERPRETED or DEVICE == "cuda"), reason="needs a GPU or Triton's interpreter"
)


def graph_of(num_nodes: int, num_edges: int, index: torch.dtype = torch.int32) -> tuple[Tensor, Tensor]:
    """Return a random CSR with a hub, multi-edges and nodes without edges."""
    generator = torch.Generator().manual_seed(num_nodes)
    dst = torch.randint(num_nodes - num_nodes // 5, (num_edges,), generator=generator)
    dst[: num_edges // 4] = 3
    src = torch.randint(num_nodes, (num_edges,), generator=generator)
    indptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(dst, minlength=num_nodes).cumsum(0)
    return indptr, src.to(index)


def both(csr: tuple[Tensor, Tensor], seeds: list[int], fanouts: list[int], **options: Any) -> list[Sample]:
    """Return the samples of the CPU and of the device."""
    keys = np.array([[7 + 2**63 + hop] for hop in range(len(fanouts))], dtype=np.uint64)
    counts = np.array(fanouts, dtype=np.int64)[:, None]
    found = []
    for where, run in (("cpu", reference.sample), (DEVICE, device.sample)):
        slots = Slots(*(part.to(where) for part in csr), node_offsets=(0, len(csr[0]) - 1))
        found.append(run(Request(slots, torch.tensor(seeds, dtype=torch.int64), counts, keys, **options)))
    return found


def assert_equal(cpu: Sample, there: Sample) -> None:
    assert torch.equal(cpu.nodes, there.nodes.cpu())
    for a, b in zip(cpu.hops, there.hops, strict=True):
        assert a.num_rows == b.num_rows
        for name in ("indptr", "indices", "edge_ids"):
            assert torch.equal(getattr(a, name), getattr(b, name).cpu()), name
            assert getattr(a, name).dtype == getattr(b, name).dtype


@on_triton
@pytest.mark.parametrize(
    ("fanouts", "options"),
    [
        ([3, 2], {}),
        ([5], {"replace": True}),
        ([4, 3, 2], {"once": True}),
        ([-1, 2], {}),
        ([2, -1], {"once": True}),
        ([0, 3], {}),
        ([1, 9, 17], {"replace": True, "once": True}),
    ],
    ids=str,
)
def test_the_draws_and_rows_are_those_of_the_cpu(fanouts: list[int], options: dict[str, Any]) -> None:
    csr = graph_of(40, 160)
    for seeds in ([3, 39, 0, 17], [5], []):
        assert_equal(*both(csr, seeds, fanouts, **options))


@on_triton
def test_wide_indices_and_a_table_that_is_used_again() -> None:
    csr = graph_of(60, 300, torch.int64)
    slots = Slots(csr[0].to(DEVICE), csr[1].to(DEVICE), node_offsets=(0, 60))
    keys, counts = np.array([[5], [6]], dtype=np.uint64), np.array([[4], [3]])
    for first in range(3):
        seeds = torch.arange(first, 60, 7)
        expected = reference.sample(Request(Slots(*csr, node_offsets=(0, 60)), seeds, counts, keys))
        assert_equal(expected, device.sample(Request(slots, seeds, counts, keys)))


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
def test_recorded_calls_draw_what_others_draw() -> None:
    csr = graph_of(60, 300)
    slots = Slots(csr[0].cuda(), csr[1].cuda(), node_offsets=(0, 60))
    counts = np.array([[4], [3], [0], [2]])
    for call in range(device._REPEATS + 4):
        keys = np.array([[call + 2**63], [6 * call], [7], [8]], dtype=np.uint64)
        seeds = torch.arange(call, 60, 7)[:8]
        options: dict[str, Any] = {"replace": call % 2 == 1}
        expected = reference.sample(
            Request(Slots(*csr, node_offsets=(0, 60)), seeds, counts, keys, **options)
        )
        for _ in range(device._REPEATS):
            assert_equal(expected, device.sample(Request(slots, seeds, counts, keys, **options)))
    assert sum(map(len, device._kept[slots.indptr].recordings.values())) == 2


@on_triton
def test_seeds_are_checked() -> None:
    csr = graph_of(20, 60)
    slots = Slots(csr[0].to(DEVICE), csr[1].to(DEVICE), node_offsets=(0, 20))
    keys, counts = np.array([[5]], dtype=np.uint64), np.array([[2]])
    for seeds, message in (([3, 3], "there twice"), ([20], "no node")):
        with pytest.raises(GraphError, match=message):
            device.sample(Request(slots, torch.tensor(seeds), counts, keys))


class Emptied(list[Any]):
    """A list that another thread empties between a look at it and `pop`."""

    def __bool__(self) -> bool:
        return True


@on_triton
def test_what_another_thread_took_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    csr = graph_of(20, 60)
    slots = Slots(csr[0].to(DEVICE), csr[1].to(DEVICE), node_offsets=(0, 20))
    keys, counts = np.array([[5]], dtype=np.uint64), np.array([[2]])
    request, kind = (
        Request(slots, torch.tensor([3, 7]), counts, keys),
        device._Kind(0, 2, (2,), False, False),
    )
    tables = Emptied()
    nodes, _ = device._launched(request, kind, tables)
    assert nodes[:2].tolist() == [3, 7]
    assert len(tables) == 1

    class Recorded:
        def __init__(self, *given: Any) -> None: ...

        def sample(self, *given: Any) -> str:
            return "drawn"

    monkeypatch.setattr("weft.kernels.triton.sample.CapturedDraws", Recorded)
    recordings = Emptied()
    assert device._replayed(request, kind, recordings) == "drawn"
    assert len(recordings) == 1


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
def test_a_sampler_of_a_graph_on_the_gpu() -> None:
    indptr, indices = graph_of(50, 400)
    dst = torch.repeat_interleave(torch.arange(50), indptr.diff())
    graph = Graph.from_edges(torch.stack([indices.long(), dst]), x=torch.rand(50, 7), y=torch.arange(50) % 3)
    there = graph.to(device="cuda")
    expected, found = (NeighborSampler(each, [5, 3], seed=4).sample([1, 7, 30], 2) for each in (graph, there))
    assert found.x.is_cuda
    assert torch.equal(found.x.cpu(), expected.x)
    assert torch.equal(found.y.cpu(), expected.y)  # type: ignore[union-attr]
    for a, b in zip(expected.blocks, found.blocks):
        h = torch.rand(a.num_src, 5)
        assert torch.allclose(a.aggregate(h, "mean"), b.aggregate(h.cuda(), "mean").cpu(), atol=1e-6)
    weight = torch.rand(graph.num_edges)
    with pytest.raises(GraphError, match="weighted draws are made on the CPU"):
        NeighborSampler(there, [2], weight=weight)
