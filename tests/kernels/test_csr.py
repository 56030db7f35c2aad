"""CSR building, transposing and relabelling."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from kernel_checks import csr, same_bits

from weft import kernels
from weft.errors import GraphError
from weft.kernels import native, reference
from weft.kernels.csr import transpose_op


def test_edges_are_ordered_by_destination_source_and_position(form: str) -> None:
    src, dst = torch.tensor([2, 0, 1, 0, 2, 0]), torch.tensor([1, 1, 0, 3, 1, 1])
    indptr, indices, edge_ids = kernels.build_csr(src, dst, 5)
    assert indptr.tolist() == [0, 1, 5, 5, 6, 6]
    assert indices.tolist() == [1, 0, 0, 2, 2, 0]
    assert edge_ids.tolist() == [2, 1, 5, 0, 4, 3]
    assert (indptr.dtype, indices.dtype, edge_ids.dtype) == (torch.int64, torch.int32, torch.int64)


def test_the_relation_comes_before_the_source(form: str) -> None:
    src, dst, relation = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 0, 0, 0]), torch.tensor([1, 0, 1, 0])
    _, indices, edge_ids = kernels.build_csr(src, dst, 1, edge_type=relation)
    assert indices.tolist() == [1, 3, 0, 2]
    assert edge_ids.tolist() == [1, 3, 0, 2]


@pytest.mark.parametrize("num_dst", [1, 7, 1024, 1025, 50_000])
@pytest.mark.parametrize("typed", [False, True])
def test_large_graphs_agree_with_a_plain_sort(num_dst: int, typed: bool) -> None:
    generator = torch.Generator().manual_seed(num_dst)
    src = torch.randint(100, (70_000,), generator=generator, dtype=torch.int32)
    dst = torch.randint(num_dst, (70_000,), generator=generator)
    relation = torch.randint(3, (70_000,), generator=generator) if typed else None
    got = kernels.build_csr(src, dst, num_dst, edge_type=relation)
    expected = reference.build_csr(src, dst, num_dst, relation)
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(got, expected))
    transposed = kernels.transpose_csr(got[0], got[1], 101)
    plain = reference.transpose(got[0], got[1], 101)
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(transposed, plain))


def test_sources_that_need_64_bits_keep_them(form: str) -> None:
    src = torch.tensor([2**31, 5, 2**40])
    _, indices, _ = kernels.build_csr(src, torch.zeros(3, dtype=torch.int64), 1)
    assert indices.dtype == torch.int64
    assert indices.tolist() == [5, 2**31, 2**40]


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_the_transpose_names_destination_and_position_of_every_edge(form: str, index: torch.dtype) -> None:
    indptr, indices = torch.tensor([0, 2, 2, 4]), torch.tensor([0, 2, 0, 0], dtype=index)
    transposed = kernels.transpose_csr(indptr.int(), indices, 4)
    assert transposed.indptr.tolist() == [0, 3, 3, 4, 4]
    assert transposed.indices.tolist() == [0, 2, 2, 0]
    assert transposed.edges.tolist() == [0, 2, 3, 1]
    assert transposed.edges.dtype == torch.int32


def test_transposing_twice_gives_the_graph_back(form: str) -> None:
    indptr, indices = csr(40, 30, 300)
    once = kernels.transpose_csr(indptr, indices, 40)
    twice = kernels.transpose_csr(once.indptr, once.indices, 30)
    assert torch.equal(twice.indptr, indptr)
    assert torch.equal(twice.indices, indices)
    assert torch.equal(once.edges[twice.edges.long()], torch.arange(300, dtype=torch.int32))


def test_no_edges_and_no_nodes(form: str) -> None:
    none = torch.zeros(0, dtype=torch.int64)
    for num_dst in (0, 3):
        indptr, indices, edge_ids = kernels.build_csr(none, none, num_dst)
        assert indptr.tolist() == [0] * (num_dst + 1)
        assert indices.numel() == edge_ids.numel() == 0
        for num_src in (0, 2):
            assert kernels.transpose_csr(indptr, indices, num_src).indptr.tolist() == [0] * (num_src + 1)


def test_the_result_does_not_depend_on_the_number_of_threads() -> None:
    generator = torch.Generator().manual_seed(0)
    src, dst = (torch.randint(5000, (100_000,), generator=generator) for _ in range(2))

    def run() -> list[torch.Tensor]:
        indptr, indices, edge_ids = kernels.build_csr(src, dst, 5000)
        return [indptr, indices, edge_ids, *kernels.transpose_csr(indptr, indices, 5000)]

    same_bits(run)


def test_opcheck(form: str) -> None:
    torch.library.opcheck(transpose_op, (*csr(6, 5, 14), 6))


@pytest.mark.parametrize(("src", "dst"), [([-1, 0], [0, 0]), ([0, 0], [0, 2]), ([0, 0], [-1, 0])])
def test_edges_outside_the_graph_are_refused(form: str, src: list[int], dst: list[int]) -> None:
    with pytest.raises(GraphError, match="dst in 0 … 1"):
        kernels.build_csr(torch.tensor(src), torch.tensor(dst), 2)


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(GraphError, match="one length"):
        kernels.build_csr(torch.tensor([0, 1]), torch.tensor([0]), 2)
    with pytest.raises(GraphError, match="expected 2 edge types"):
        kernels.build_csr(torch.tensor([0, 1]), torch.tensor([0, 1]), 2, edge_type=torch.tensor([0]))


@pytest.mark.parametrize("relation", [-1, 2**31, 2**40])
def test_edge_types_that_cannot_be_sorted_are_refused(form: str, relation: int) -> None:
    with pytest.raises(GraphError, match=r"edge types in 0 … 2\^31 - 1"):
        kernels.build_csr(
            torch.tensor([0, 1]), torch.tensor([0, 1]), 2, edge_type=torch.tensor([0, relation])
        )


def test_numbers_of_rows_below_zero_are_refused(form: str) -> None:
    none = torch.zeros(0, dtype=torch.int64)
    with pytest.raises(GraphError, match="0 destinations, got -1"):
        kernels.build_csr(none, none, -1)
    with pytest.raises(GraphError, match="0 sources, got -1"):
        kernels.transpose_csr(torch.tensor([0]), none, -1)


@pytest.mark.skipif(not native.available(), reason="needs the native core")
def test_the_core_refuses_to_transpose_indices_outside_the_sources() -> None:
    with pytest.raises(GraphError, match="points outside"):
        kernels.transpose_csr(torch.tensor([0, 2]), torch.tensor([0, 3], dtype=torch.int32), 3)


@pytest.mark.parametrize("offset", [0, 2**40, -(2**40)])
def test_relabel_numbers_ids_by_first_appearance(form: str, offset: int) -> None:
    ids = torch.tensor([[5, 3], [5, 9], [3, 0]]) + offset
    unique, local = kernels.relabel(ids)
    assert (unique - offset).tolist() == [5, 3, 9, 0]
    assert local.tolist() == [[0, 1], [0, 2], [1, 3]]


@pytest.mark.parametrize("bound", [10, 5000, 2**62])
def test_relabel_of_many_ids_can_be_undone(form: str, bound: int) -> None:
    ids = torch.randint(bound, (4000,), generator=torch.Generator().manual_seed(0))
    unique, local = kernels.relabel(ids)
    assert torch.equal(unique[local], ids)
    assert unique.unique().numel() == unique.numel()
    first = torch.tensor([int((ids == u).nonzero()[0]) for u in unique[:50]])
    assert torch.equal(first, first.sort().values)


def test_relabel_of_nothing(form: str) -> None:
    unique, local = kernels.relabel(torch.zeros(0, 2, dtype=torch.int64))
    assert unique.shape == (0,)
    assert local.shape == (0, 2)


_TOO_LARGE = """
import resource
import torch
from weft import kernels

torch.set_num_threads(2)
size = 1 << 20
dst = torch.randint(4, (size,))
src = torch.arange(size).flip(0)
kernels.build_csr(src, dst, 4)  # starts the threads
outcomes = set()
for extra in range(0, 96 << 20, 4 << 20):
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + extra, resource.RLIM_INFINITY))
    try:
        kernels.build_csr(src, dst, 4)
        outcome = "built"
    except (MemoryError, RuntimeError):
        outcome = "refused"
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    outcomes.add(outcome)
assert outcomes == {"built", "refused"}, outcomes
"""


@pytest.mark.skipif(not native.available(), reason="needs the native core")
@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_running_out_of_memory_is_an_error_not_the_end_of_the_process() -> None:
    environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
    done = subprocess.run([sys.executable, "-c", _TOO_LARGE], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("relations", [1, 3])
def test_hubs_are_sorted_in_runs_that_merge(form: str, relations: int) -> None:
    generator = torch.Generator().manual_seed(4)
    size = 700_000  # the hub has five whole runs and a rest
    dst = torch.randint(50, (size,), generator=generator)
    dst[: size // 2] = 7
    src = torch.randint(1000, (size,), generator=generator)
    kinds = torch.randint(relations, (size,), generator=generator)
    made = kernels.build_csr(src, dst, 50, edge_type=kinds)
    same_bits(lambda: kernels.build_csr(src, dst, 50, edge_type=kinds))
    order = np.lexsort([np.arange(size), src, kinds, dst])
    assert np.array_equal(made[2], order)
    assert torch.equal(made[1].long(), src[order])
