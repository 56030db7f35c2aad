"""Partitioners in a child process."""

import json
from pathlib import Path

import torch

from weft.graph import Graph
from weft.partitioners import child, partition


def test_metis_runs_in_the_child_and_its_quality_is_measured() -> None:
    made = partition(Graph.from_edges([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]]), 2, seed=1)
    assert (made.name, made.num_parts, made.cuts, made.options["seed"]) == ("metis", 2, "nodes", 1)
    assert made.parts.dtype == torch.int32
    assert made.quality is not None
    assert (made.quality.cut_edges, made.quality.nodes) == (2, [3, 3])


def test_edges_that_lie_in_a_file_are_not_copied(tmp_path: Path) -> None:
    held = Graph.from_edges([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]], train_mask=torch.ones(6).bool())
    held.save(tmp_path / "graph")
    graph = Graph.load(tmp_path / "graph")
    for given, copied in ((held, {"indptr", "indices", "edge_ids"}), (graph, set())):
        (folder := tmp_path / f"task{len(copied)}").mkdir()
        assert given.train_mask is not None
        given.train_mask[2] = False  # in memory alone, not in the file
        child.write_task(folder, given, 2, module="weft.partitioners.ldg", name="ldg", options={})
        assert {file.stem for file in folder.glob("*.npy")} == {*copied, "train_mask"}
        read = child.read_graph(folder, json.loads((folder / child.TASK).read_text()))
        assert torch.equal(read.edge_index, held.edge_index)
        assert read.train_mask is not None
        assert read.train_mask.tolist() == [True, True, False, True, True, True]
