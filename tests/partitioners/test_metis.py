"""METIS: what it is given, and what it keeps to on generated and real graphs."""

import warnings
from pathlib import Path

import pytest
import torch
from typed_communities import typed_graph

from weft.datasets import open_dataset
from weft.errors import WeftWarning
from weft.graph import Graph
from weft.partitioners.constraints import constraints
from weft.partitioners.guarded import partition
from weft.partitioners.metis import MetisPartitioner
from weft.partitioners.quality import count_cut, count_halo, measure

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.mark.parametrize("objective", ["cut", "volume"])
def test_a_real_graph_is_cut_little_and_evenly(objective: str) -> None:
    graph = real_graph("cora.npz")
    parts = MetisPartitioner(objective=objective).assign(graph, 4)  # type: ignore[arg-type]
    quality = measure(graph, parts, 4)
    assert quality.cut_share < 0.12
    assert constraints(graph, 4, 0.03).broken(parts.numpy()) == []


def test_a_looser_bound_cuts_less() -> None:
    # Two groups of six and ten nodes, all linked, and one edge between them.
    inside = [(a, b) for group in (range(6), range(6, 16)) for a in group for b in group if a < b]
    graph = Graph.from_edges(torch.tensor([*inside, (0, 6)]).T, num_nodes=16)
    tight, loose = (
        MetisPartitioner(objective="cut", balance="nodes", imbalance=bound).assign(graph, 2)
        for bound in (0.03, 0.5)
    )
    assert count_cut(graph, loose, 2) == 1 < count_cut(graph, tight, 2)


@pytest.mark.parametrize("name", ["metis", "kaminpar"])
@pytest.mark.parametrize("parts", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_a_real_graph_of_several_types_keeps_every_bound(name: str, parts: int) -> None:
    if name == "kaminpar":
        pytest.importorskip("kaminpar", reason="kaminpar is not installed: pip install 'weft[kaminpar]'")
    graph = real_graph("hetero_dblp.npz")
    with warnings.catch_warnings():
        warnings.simplefilter("error", WeftWarning)
        made = partition(graph, parts, name=name, tries=2)
    limits = constraints(graph, parts, 0.03)
    assert len(limits.names) == 9
    assert limits.broken(made.parts.numpy()) == []
    # METIS with no weight at all cuts 77,522 and 106,900 edges; 30,409 and 50,549 halo rows
    assert count_halo(graph, made.parts, parts) < {4: 33_000, 8: 56_000}[parts]


@pytest.mark.parametrize("seed", range(3))
def test_generated_typed_graphs_keep_every_bound(seed: int) -> None:
    graph = typed_graph(seed)
    for parts in (2, 3, 8):
        limits = constraints(graph, parts, 0.05)
        assert len(limits.names) == 8
        found = MetisPartitioner(imbalance=0.05, seed=seed).assign(graph, parts)
        assert limits.broken(found.numpy()) == []


def test_a_bound_that_cannot_be_kept_is_told_with_its_numbers() -> None:
    # Six hubs in four parts: two parts must hold two of them.
    hubs = torch.arange(6).repeat_interleave(40)
    leaves = torch.arange(6, 246)
    graph = Graph.from_edges(torch.stack([leaves, hubs]), num_nodes=246)
    with pytest.warns(WeftWarning, match=r"'metis' passes its bound: edges 80 in one part, at most 61"):
        partition(graph, 4)


def test_balancing_nodes_alone_cuts_less() -> None:
    graph = typed_graph(1)
    cuts = {
        balance: count_cut(graph, MetisPartitioner(objective="cut", balance=balance).assign(graph, 4), 4)
        for balance in ("all", "nodes")
    }
    assert cuts["nodes"] < cuts["all"]


def test_the_objective_is_what_is_cut_for_and_what_the_best_try_is_chosen_by() -> None:
    made = torch.Generator().manual_seed(4)
    sources = (torch.rand(500, generator=made) ** 3 * 120).long()  # few have many readers
    graph = Graph.from_edges(
        torch.stack([sources, torch.randint(120, (500,), generator=made)]), num_nodes=120
    )
    first, best = (
        [
            MetisPartitioner(objective=objective, balance="nodes", imbalance=0.1, tries=tries).assign(
                graph, 4
            )
            for objective in ("volume", "cut")
        ]
        for tries in (1, 3)
    )
    assert not torch.equal(*first)
    assert count_halo(graph, best[0], 4) < count_halo(graph, best[1], 4)
    assert count_cut(graph, best[1], 4) < count_cut(graph, best[0], 4)


@pytest.mark.slow
def test_a_large_directed_graph_is_cut_little() -> None:
    graph = real_graph("web_google.npz")
    parts = MetisPartitioner(tries=1).assign(graph, 8)
    assert count_halo(graph, parts, 8) < 45_000
    assert constraints(graph, 8, 0.03).broken(parts.numpy()) == []


def real_graph(name: str) -> Graph:
    if not (DATA / name).is_file():
        pytest.skip(f"{DATA / name} is not there")
    graph = open_dataset(DATA / name)
    assert torch.is_tensor(graph.indptr)
    return graph
