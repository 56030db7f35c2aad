"""Linear deterministic greedy: the native loop is the definition, and more passes cut less."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from generated_graphs import graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.graph import Graph, row_ranges
from weft.kernels import native
from weft.partitioners import ldg
from weft.partitioners.base import undirected
from weft.partitioners.quality import count_cut

needs_core = pytest.mark.skipif(not ldg.has_native(), reason="the native core is not built")


def ring_of_cliques(cliques: int = 6, size: int = 8) -> Graph:
    pairs = [
        (c * size + a, c * size + b)
        for c in range(cliques)
        for a in range(size)
        for b in range(size)
        if a != b
    ]
    pairs += [(c * size, (c + 1) % cliques * size) for c in range(cliques)]
    order = torch.from_numpy(np.random.default_rng(0).permutation(cliques * size))
    return Graph.from_edges(order[torch.tensor(pairs).t()])


@needs_core
@settings(max_examples=60, deadline=None)
@given(graphs(max_nodes=12), st.integers(1, 5), st.integers(1, 3), st.sampled_from(["id", "random"]))
def test_the_native_loop_gives_what_the_definition_gives(
    graph: Graph, num_parts: int, passes: int, order: str
) -> None:
    partitioner = ldg.LdgPartitioner(passes=passes, order=order)  # type: ignore[arg-type]
    fast = partitioner.assign(graph, num_parts)
    with native.disabled():
        assert torch.equal(fast, partitioner.assign(graph, num_parts))


@needs_core
@settings(max_examples=40, deadline=None)
@given(graphs(max_nodes=12), st.integers(1, 9))
def test_the_pieces_that_are_read_at_once_do_not_matter(graph: Graph, some: int) -> None:
    partitioner = ldg.LdgPartitioner()
    whole = partitioner.assign(graph, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_ranges, "EDGES_AT_ONCE", some)
        assert torch.equal(whole, partitioner.assign(graph, 3))


_MEASURED = """
import sys
from pathlib import Path
from weft.graph import Graph, row_ranges
from weft.partitioners.ldg import LdgPartitioner
row_ranges.EDGES_AT_ONCE = 1 << 16
def peak():
    line = next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
for path in sys.argv[1:]:
    graph = Graph.load(path, verify=False)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = peak()
    LdgPartitioner(passes=1).assign(graph, 16)
    print(peak() - before)
"""


@needs_core
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
def test_memory_does_not_rise_with_the_edges(tmp_path: Path) -> None:
    nodes, sizes = 20_000, (200_000, 1_200_000)
    for edges in sizes:
        ends = torch.from_numpy(np.random.default_rng(0).integers(0, nodes, (2, edges)))
        Graph.from_edges(ends, num_nodes=nodes).save(tmp_path / str(edges))
    command = [sys.executable, "-c", _MEASURED, *(str(tmp_path / str(edges)) for edges in sizes)]
    told = subprocess.run(command, check=True, capture_output=True, timeout=100).stdout
    peaks = [int(peak) for peak in told.split()]
    # Edges as they lie in the file are 4 bytes each; a copy of all of them would be 4 or 8 more.
    assert (peaks[1] - peaks[0]) / (sizes[1] - sizes[0]) < 3.5, peaks


def test_a_node_follows_its_neighbours_until_their_part_is_full() -> None:
    near = undirected(Graph.from_edges([[0, 0, 0, 0], [1, 2, 3, 4]]))
    parts = ldg.reference(near, np.ones(5), np.arange(5), 2, 3.0, 1)
    assert parts.tolist() == [0, 0, 0, 1, 1]  # 0 is full with three: its score is not above 0


def test_cliques_stay_whole_after_a_few_passes() -> None:
    graph = ring_of_cliques()
    cuts = [
        count_cut(graph, ldg.LdgPartitioner(passes=passes, slack=0.1).assign(graph, 3), 3)
        for passes in (1, 10)
    ]
    assert cuts[1] < cuts[0] / 2
