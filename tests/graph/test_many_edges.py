"""More edges than 32 bits number, and more values than that in features: files with holes take no room.

Node 0 has 2^31 edges, which nobody looks at; those of nodes 1, 2 and 3 lie behind them.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from weft import kernels
from weft.graph import Graph
from weft.graph.build import Parts
from weft.graph.degrees import entries_of_rows
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.cut import pieces
from weft.graph.row_ranges import row_ranges, sources
from weft.graph.topology import Csr, Topology, index_dtype
from weft.kernels import native
from weft.partitioners import ldg
from weft.pipeline.ingest.ingestion import _index
from weft.reading.mapped import map_values, remember
from weft.samplers import NeighborSampler

MANY = 2**31
SOURCES = [2, 3, 0, 1, 3, 2]
INDPTR = torch.tensor([0, MANY, MANY + 2, MANY + 5, MANY + 6])
NEAR: dict[int, list[int]] = {1: [2, 3], 2: [0, 1, 3], 3: [2]}


def with_holes(path: Path, dtype: Any, shape: tuple[int, ...], last: "np.ndarray[Any, Any]") -> Tensor:
    """Return an array in a file, all zeros but for its last values."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    with open(path, "wb") as file:
        file.truncate(size)
        file.seek(size - last.nbytes)
        file.write(last.tobytes())
    return torch.from_numpy(remember(map_values(path, dtype, shape)))


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    indices = with_holes(tmp_path / "indices", np.int32, (MANY + 6,), np.array(SOURCES, np.int32))
    places = np.arange(MANY, MANY + 6)
    edge_ids = with_holes(tmp_path / "edge_ids", np.int64, (MANY + 6,), places)
    parts = Parts(
        Topology.from_csr(Csr(INDPTR, indices, edge_ids, None)),
        node_data={"node": {"x": torch.eye(4)}},
        edge_data={},
        node_types=["node"],
        node_offsets=[0, 4],
        edge_types=[("node", "edge", "node")],
        target_type=None,
        edge_data_is_canonical=True,
    )
    return Graph(parts)


@pytest.mark.parametrize("fanout", [-1, 1])
def test_neighbours_behind_them_are_sampled(graph: Graph, fanout: int) -> None:
    batch = NeighborSampler(graph, [fanout], seed=1).sample(torch.tensor([1, 2, 3]))
    (block,) = batch.blocks
    found = batch.nodes[block.indices.long()].split(block.indptr.diff().tolist())
    for node, near in zip((1, 2, 3), found):
        wanted = NEAR[node] if fanout == -1 else NEAR[node][:]
        assert set(near.tolist()) <= set(wanted)
        assert len(near) == (len(wanted) if fanout == -1 else 1)


def test_a_part_of_edges_behind_them_is_cut_out(graph: Graph) -> None:
    _, piece = pieces(graph, Assignment(torch.tensor([0, 1, 1, 1], dtype=torch.int32), 2))
    (run,) = piece.runs()
    assert piece.num_edges == 6
    assert run.edges.tolist() == list(range(MANY, MANY + 6))
    assert (run.src.tolist(), run.dst.tolist()) == (SOURCES, [1, 1, 2, 2, 2, 3])


def test_ranges_of_rows_and_their_entries_are_counted_in_64_bits(graph: Graph) -> None:
    assert list(row_ranges(INDPTR, edges=4)) == [(0, 1), (1, 2), (2, 4)]
    indptr, entries = entries_of_rows(INDPTR, torch.tensor([3, 1]))
    assert (indptr.tolist(), entries.tolist()) == ([0, 1, 3], [MANY + 5, MANY, MANY + 1])
    assert sources(graph.indices, MANY + 2, MANY + 6).tolist() == SOURCES[2:]
    assert (index_dtype(MANY), index_dtype(MANY + 1)) == (torch.int64, torch.int64)
    assert (_index(MANY - 1), _index(MANY)) == (np.int32, np.int64)


@pytest.mark.skipif(not ldg.has_native(), reason="the native core is not built")
def test_a_stream_over_edges_behind_them_gives_the_parts_of_one_from_zero(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = np.array(SOURCES, np.int32)

    def assigned(first: int) -> list[int]:
        indptr = np.array([0, 0, 2, 5, 6]) + first
        indptr[0] = 0
        held = SimpleNamespace(indptr=torch.from_numpy(indptr), indices=torch.from_numpy(near), num_edges=6)
        piece = ldg._Piece(np.arange(1, 4), near, first, near, first)
        reverse = SimpleNamespace(indptr=indptr, close=lambda: None)
        monkeypatch.setattr(ldg, "Reverse", lambda *_: reverse)
        monkeypatch.setattr(ldg, "_pieces", lambda *_: [piece])
        made = ldg._native(held, np.ones(4), None, 2, 3.0, 2, lambda *_: None)  # type: ignore[arg-type]
        return list(made.tolist())

    assert assigned(MANY) == assigned(0)


@pytest.mark.parametrize("core", [True, False])
def test_rows_far_behind_are_gathered_and_summed(tmp_path: Path, core: bool) -> None:
    rows = 1 << 26  # of 64 values: 2^32 of them
    x = with_holes(tmp_path / "x", np.float32, (rows, 64), np.ones(64, np.float32))
    indptr, indices = torch.tensor([0, 2, 3]), torch.tensor([rows - 1, 0, rows - 1])

    def found() -> tuple[list[float], list[float]]:
        gathered = kernels.gather(x, indices)[:, 5]
        return gathered.tolist(), kernels.spmm(indptr, indices, x)[:, 63].tolist()

    if core:
        assert found() == ([1, 0, 1], [1, 1])
        return
    with native.disabled():
        assert found() == ([1, 0, 1], [1, 1])
