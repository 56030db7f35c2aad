"""What every partitioner must do: place everything, in range, the same way each time, on any graph."""

import inspect
from importlib.util import find_spec

import pytest
import torch

from weft.graph import Graph
from weft.graph.parts.shard import Shard, make_shards
from weft.partitioners import Assignment, Partitioner, partitioners
from weft.partitioners.guarded import fill_empty, verify
from weft.partitioners.quality import measure

# Those that read a file have their own tests.
NAMES = [
    name for name in partitioners.names() if "path" not in inspect.signature(partitioners[name]).parameters
]

GRAPHS = {
    "directed": Graph.from_edges([[0, 1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7]]),
    "disconnected": Graph.from_edges([[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6]]),
    "isolated": Graph.from_edges([[0, 1], [1, 0]], num_nodes=9),
    "no edges": Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=6),
    "hub": Graph.from_edges([list(range(1, 20)), [0] * 19]),
    "loops and duplicates": Graph.from_edges(
        [[0, 0, 0, 1, 1, 2, 3, 3], [0, 1, 1, 0, 1, 3, 2, 2]], num_nodes=5
    ),
    "one node": Graph.from_edges([[0], [0]]),
    "typed": Graph.from_types(
        {"author": {"num_nodes": 3}, "paper": {"x": torch.rand(6, 2), "y": [0, 1, 0, 1, 0, 1]}},
        {
            ("author", "writes", "paper"): [[0, 1, 2, 2], [0, 1, 2, 5]],
            ("paper", "cites", "paper"): [[0, 1, 2, 3], [1, 2, 3, 4]],
        },
    ),
    "few train nodes": Graph.from_edges(
        [[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]],
        y=[0, 1, 0, 1, 0, 1],
        train_mask=torch.tensor([True, True, False, False, False, False]),
    ),
}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    if request.param == "kaminpar" and find_spec("kaminpar") is None:
        pytest.skip("kaminpar is not installed: pip install 'weft[kaminpar]'")
    return str(request.param)


def assign(name: str, graph: Graph, num_parts: int) -> Assignment:
    """Return what `partition` would, without the child process, which costs a second and is tested in run."""
    kind: type[Partitioner] = partitioners[name]
    count = graph.num_nodes if kind.cuts == "nodes" else graph.num_edges
    parts = verify(kind(seed=3).assign(graph, num_parts), count, num_parts, name=name)
    if kind.cuts == "nodes":
        parts, _ = fill_empty(parts, num_parts)
    return Assignment(parts, num_parts, name, cuts=kind.cuts)


@pytest.mark.parametrize("what", GRAPHS)
@pytest.mark.parametrize("num_parts", [2, 5])
def test_everything_is_placed_and_no_part_is_empty_without_need(name: str, what: str, num_parts: int) -> None:
    graph = GRAPHS[what]
    if num_parts > graph.num_nodes:
        pytest.skip("`partition` does not ask a partitioner for more parts than nodes")
    made = assign(name, graph, num_parts)
    if made.cuts == "nodes":
        assert len(set(made.parts.tolist())) == num_parts
    shards = make_shards(graph, made)
    assert Shard.merge(shards).edge_ids.tolist() == list(range(graph.num_edges))
    quality = measure(graph, made.parts, num_parts, cuts=made.cuts)
    assert sum(quality.nodes) == graph.num_nodes
    assert sum(quality.edges) == graph.num_edges


def test_the_same_seed_gives_the_same_parts(name: str) -> None:
    graph = GRAPHS["hub"]
    assert torch.equal(assign(name, graph, 3).parts, assign(name, graph, 3).parts)


def test_two_communities_are_told_apart_by_those_that_look_at_edges(name: str) -> None:
    if name in ("hash", "range"):
        pytest.skip("blind to edges")
    halves = [[a + shift for a in range(8)] for shift in (0, 8)]
    pairs = [(a, b) for half in halves for a in half for b in half if a != b] + [(0, 8), (8, 0)]
    made = assign(name, Graph.from_edges(torch.tensor(pairs).t()), 2)
    quality = measure(Graph.from_edges(torch.tensor(pairs).t()), made.parts, 2, cuts=made.cuts)
    assert quality.halo_rows <= 4


def test_its_docstring_says_what_it_is_good_for(name: str) -> None:
    assert (partitioners[name].__doc__ or "").strip().endswith(".")
