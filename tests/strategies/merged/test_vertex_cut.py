"""The vertex cut: split nodes take the steps of one process; its exchanges send what they should."""

import layout_jobs
import pytest
import torch
from halo_jobs import NODES
from ranks import run_ranks

from weft.comm.group import Group
from weft.errors import InputError, RecipeError
from weft.graph.parts.assignment import Assignment
from weft.graph.parts.shard import make_shards
from weft.strategies.local import LocalGraph
from weft.strategies.merged.vertex_cut import VertexCut


def test_one_rank_takes_the_steps_of_one_process() -> None:
    assert layout_jobs.vertex_cut_equals_one_process(Group.alone(), names=["sage mean", "gat", "rgcn"]) == []


@pytest.mark.parametrize(
    ("size", "names"),
    [(2, layout_jobs.FEW)]
    + [pytest.param(size, tuple(layout_jobs.MODELS), marks=pytest.mark.slow) for size in (2, 4)],
    ids=["2", "2-whole", "4-whole"],
)
def test_split_nodes_take_the_steps_of_one_process(size: int, names: tuple[str, ...]) -> None:
    for found in run_ranks(size, layout_jobs.vertex_cut_promises, names):
        assert found["wrong"] == []
        exact = found["bytes"][0]["first"]
        assert exact > 0
        for r, sent in found["bytes"].items():
            # Every row once in r epochs: an r-th of the bytes an epoch, to the byte.
            assert (sent["first"], sum(sent["next"])) == (exact, exact)
            assert len(sent["next"]) == max(r, 1)
        between_replicas = ("reduce", "broadcast")
        assert found["schedule"] == []
        assert found["none"] == []
        assert {kind for kind in found["local"] if kind.startswith(between_replicas)} == {
            "reduce forward",
            "broadcast forward",
        }
        assert found["resumed"]
        of_rows, of_gradients = found["local gradient"]
        assert (of_rows, of_gradients > 0.1) == (0.0, True)


def test_a_replica_that_is_no_root_does_not_count() -> None:
    graph = layout_jobs.graph_of("directed")
    edges = (torch.arange(graph.num_edges) % 3).int()
    held = [LocalGraph(shard) for shard in make_shards(graph, Assignment(edges, 3, cuts="edges"))]
    assert sum(len(local.shard.node_ids) for local in held) > graph.num_nodes
    counted = torch.cat([local.shard.node_ids[local.owned] for local in held])
    assert torch.equal(counted.sort().values, torch.arange(graph.num_nodes))


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(RecipeError, match="'vertex_cut' does not allow 'stale'; allowed: exact, delayed"):
        VertexCut.check({"exchange": "stale"})
    with pytest.raises(InputError, match=r"strategy\.exchange\.r: expected a number"):
        VertexCut.check({"exchange": {"name": "delayed", "r": -1}})
    shard = make_shards(layout_jobs.graph_of("directed"), torch.zeros(NODES).int())[0]
    with pytest.raises(InputError, match="vertex_cut needs parts of edges"):
        VertexCut(LocalGraph(shard))
