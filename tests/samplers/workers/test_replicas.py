"""Neighbourhoods of important nodes, which every worker holds: those of the whole graph."""

import sampled_jobs
import torch

from weft.comm.group import Group
from weft.graph import Graph
from weft.graph.parts.shard import make_shards
from weft.samplers.workers.replicas import Replicate, importance, important

# 0 is read by 1, 2 and 3 and reads 4; 4 reads nobody.
GRAPH = Graph.from_edges([[0, 0, 0, 4], [1, 2, 3, 0]], num_nodes=5)


def test_importance_is_paths_out_of_a_node_over_paths_into_it() -> None:
    (shard,) = make_shards(GRAPH, torch.zeros(5).int())
    assert importance(shard, Group.alone(), 1).tolist() == [3.0, 0.0, 0.0, 0.0, 1.0]
    assert importance(shard, Group.alone(), 2).tolist() == [3.0, 0.0, 0.0, 0.0, 4.0]
    assert important(shard, Group.alone(), Replicate(threshold=2.0)).tolist() == [0]
    assert important(shard, Group.alone(), Replicate(threshold=3.5, hops=2)).tolist() == [4]


def test_one_worker_draws_the_same_with_replicas_and_without() -> None:
    assert sampled_jobs.replicas(Group.alone()) == []
