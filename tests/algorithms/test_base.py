"""Algorithms on parts of a graph: the numbers of one process, and the same bits for any number of ranks."""

from pathlib import Path

import algorithm_jobs
import pytest
import torch
from algorithm_jobs import NODES, OPTIONS, PAGERANK, web
from ranks import run_ranks
from torch import Tensor

from weft.algorithms import GraphParts, label_propagation, pagerank
from weft.comm.group import Group
from weft.errors import GraphError
from weft.graph.graph import Graph
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.partition import write_partition
from weft.graph.parts.shard import make_shards


def cut(folder: Path, graph: Graph, parts: Tensor) -> str:
    """Write a graph in four parts."""
    write_partition(folder, graph, Assignment(parts.int(), 4))
    return str(folder)


@pytest.mark.parametrize("parts", [torch.arange(NODES) % 4, (torch.arange(NODES) // 10 + 1) % 4])
def test_any_number_of_ranks_gives_the_numbers_of_one_process(parts: Tensor, tmp_path: Path) -> None:
    """Dealt out in turn; and in blocks, one of which is a single node or holds few edges."""
    parts = parts.clone()
    parts[-1] = 0  # an isolated node alone in its part where nodes lie in blocks
    folders = cut(tmp_path / "a", web(), parts), cut(tmp_path / "b", web(multilabel=True), parts)
    whole = {name: pagerank(web(), **options, **OPTIONS) for name, options in PAGERANK.items()}
    whole |= {"labels": label_propagation(web(), iterations=20)}
    whole |= {"several": label_propagation(web(multilabel=True), iterations=20)}
    found: dict[int, dict[str, Tensor]] = {}
    for size in (1, 2, 4):
        ranks = run_ranks(size, algorithm_jobs.on_parts, *folders)
        found[size] = {name: torch.empty_like(value) for name, value in whole.items()}
        for held in ranks:
            for name, (ids, values) in held.items():
                found[size][name][ids] = torch.tensor(values, dtype=whole[name].dtype)
    for name, expected in whole.items():
        assert torch.equal(found[2][name], found[1][name]), name
        assert torch.equal(found[4][name], found[1][name]), name
        if name in PAGERANK:
            torch.testing.assert_close(found[1][name], expected, rtol=1e-13, atol=1e-15)
        else:
            assert torch.equal(found[1][name], expected), name


def test_parts_of_edges_are_refused() -> None:
    graph = web()
    assignment = Assignment((torch.arange(graph.num_edges) % 2).int(), 2, cuts="edges")
    with pytest.raises(GraphError, match="algorithms need parts of nodes; these cut edges"):
        GraphParts(make_shards(graph, assignment)[0], Group.alone())
