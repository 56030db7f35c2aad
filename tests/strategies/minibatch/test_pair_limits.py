"""Links on batches: the steps of one process on any number of ranks, none of which sees its own targets."""

from pathlib import Path
from typing import Any

import halo_jobs
import link_jobs
import pair_jobs
import pytest
import torch
from ranks import run_ranks

import weft
from weft.comm.group import Group
from weft.errors import GraphError, RecipeError
from weft.graph.ends import pair_ids
from weft.samplers.edges import EdgeLoader
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.single import Single
from weft.train.model import adapt

OPTIONS: dict[str, Any] = {"name": "sampled", "fanout": [3, 2], "batch_size": 64}
LINKS = {"name": "link_prediction", "width": 8}


@pytest.fixture(scope="module")
def graph() -> weft.Graph:
    return weft.datasets.open_dataset(name="community", nodes=100, degree=6, classes=3, features=8, seed=1)


@pytest.mark.parametrize("size", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_any_number_of_ranks_takes_the_steps_of_one_process(size: int) -> None:
    if size == 1:
        assert link_jobs.equal_to_one_process(Group.alone()) == []
        return
    for wrong in run_ranks(size, link_jobs.equal_to_one_process, size == 4):
        assert wrong == []


@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [
        ("directed", "gcn", {"negatives": {"side": "both", "count": 2}}),
        ("mirrored", "gin", {"negatives": "inbatch", "loss": "infonce"}),
        ("typed both ways", "rgcn", {"target": link_jobs.WRITES, "negatives": {"name": "joint", "count": 4}}),
    ],
)
def test_all_edges_and_one_batch_are_a_step_on_the_whole_graph(
    kind: str, name: str, options: dict[str, Any]
) -> None:
    shown, task = link_jobs.links(
        pair_jobs.pair_graph(kind).to(dtype=torch.float64), hide="disjoint", share=0.4, **options
    )
    held = adapt(shown, halo_jobs.MODELS[name][0])
    whole = link_jobs.learned(Single(held, task=task, seed=3), link_jobs.model_for(held, name, task))
    one = Sampled(held, task=task, seed=3, fanout=-1, batch_size=10**6, prepare=0)
    found = link_jobs.learned(one, link_jobs.model_for(held, name, task))
    for what, value in whole.items():
        assert not value.numel() or float((found[what] - value).abs().max()) <= 1e-9, what


@pytest.mark.parametrize("kind", ["directed", "mirrored", "typed both ways"])
def test_the_targets_of_a_step_and_their_reverses_are_no_messages_of_it(kind: str) -> None:
    options = {"target": link_jobs.WRITES} if kind.startswith("typed") else {}
    shown, task = link_jobs.links(pair_jobs.pair_graph(kind), **options)
    model = link_jobs.model_for(shown, "rgcn" if options else "sage max", task)
    loader = Sampled(shown, task=task, fanout=-1, batch_size=9, prepare=0).batching.make_loader(model)
    assert isinstance(loader, EdgeLoader)
    edges = pair_ids(shown.indices.long(), shown.block().edge_dst.long(), 36)
    seen = 0
    for batch in loader:
        targets = pair_ids(batch.pairs.src, batch.pairs.dst, 36)
        seen += int(torch.isin(targets, edges).sum())
        for block in batch.blocks:
            nodes = batch.nodes.nodes
            ends = pair_ids(nodes[block.indices.long()], nodes[block.edge_dst.long()], 36)
            assert not bool(torch.isin(ends, targets).any())
    assert seen == len(task.pairs["train"]), "each is a message of the steps that do not score it"


def test_a_run_stopped_within_an_epoch_goes_on_bit_for_bit(graph: weft.Graph, tmp_path: Path) -> None:
    told: dict[str, Any] = {"strategy": OPTIONS, "task": LINKS, "epochs": 2, "hidden": 8, "eval_every": 2}
    whole = weft.train(graph, "sage", **told, out=tmp_path / "whole")
    asked = iter(range(100))
    cut = weft.train(graph, "sage", **told, out=tmp_path / "cut", stop=lambda: next(asked) == 5)
    assert cut.stopped == "interrupted"
    (saved,) = (tmp_path / "cut" / "checkpoint").glob("epoch-*")
    assert saved.name.count("-") == 2, "between two epochs"
    rest = weft.train(graph, "sage", **told, out=tmp_path / "cut", resume=True)
    assert rest.loss == whole.loss
    for name, value in whole.model.state_dict().items():
        assert torch.equal(rest.model.state_dict()[name], value), name


def test_features_in_a_store_give_the_same_run(graph: weft.Graph) -> None:
    stored, held = (
        weft.train(
            graph, "sage", strategy={**OPTIONS, **more}, task=LINKS, epochs=1, hidden=8, eval_every=1
        ).metrics
        for more in ({"store": "memory"}, {})
    )
    for split, scores in held.items():
        assert stored[split] == pytest.approx(scores, rel=1e-4), split


def timed(source: int, *, temporal: bool = True) -> tuple[Sampled, torch.nn.Module]:
    """Return a strategy on forty nodes; the last edge, in canonical order and in time, is from `source`."""
    made = torch.Generator().manual_seed(2)
    ends = torch.unique(torch.randint(39, (2, 200), generator=made), dim=1)
    ends = ends[:, ends[0] != ends[1]]
    edges = torch.cat([ends, torch.tensor([[source, 39], [39, 3]])], 1)
    time = torch.cat([torch.randint(100, (ends.shape[1],), generator=made), torch.tensor([500, 50])])
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
    graph = weft.Graph.from_edges(edges, num_nodes=40, x=x, edge_time=time)
    drawn = {"name": "uniform", "count": 5}  # of all nodes: which links are known would tell of later ones
    split = {"val": 0.2, "test": 0.1, "seed": 1}
    shown, task = link_jobs.links(graph, hide="none", split=split, evaluate=drawn)
    model = link_jobs.model_for(shown, "sage max", task)
    options: dict[str, Any] = {"fanout": -1, "batch_size": 1, "prepare": 0, "temporal": temporal}
    return Sampled(shown.to(dtype=torch.float64), task=task, **options), model


def said(strategy: Sampled, model: torch.nn.Module, split: str) -> dict[tuple[int, ...], torch.Tensor]:
    """Return what is said of each pair, by its ends and time, in a step or in an evaluation."""
    task: Any = strategy.task
    with torch.no_grad():
        if split == "train":
            loader = strategy.batching.make_loader(model)
            batches = [loader.batch(0, step) for step in range(len(loader))]
            rows = [
                task.of_batch(model, strategy.batching.batch_rows(model, batch), batch) for batch in batches
            ]
            pairs = task.pairs["train"].take(torch.cat([batch.pairs.keys for batch in batches]))
        else:
            rows, pairs = (
                [outputs for outputs, _ in strategy.batching.outputs(model)[0][split]],
                task.pairs[split],
            )
    keys = zip(pairs.src.tolist(), pairs.dst.tolist(), pairs.time.tolist())
    return dict(zip(keys, torch.cat(rows), strict=True))


@pytest.mark.parametrize("split", ["train", "val"])
def test_nothing_of_a_later_edge_flows_back_to_a_pair(split: str) -> None:
    one, other = (said(*timed(source), split) for source in (7, 8))
    same = {*one} & {*other}
    assert len(same) >= len(one) - 1 > 20
    assert all(torch.equal(one[key], other[key]) for key in same), "the last edge is later than they are"
    one, other = (said(*timed(source, temporal=False), split) for source in (7, 8))
    assert any(not torch.equal(one[key], other[key]) for key in same), "without times it does"


def test_pairs_without_times_are_refused_where_neighbours_go_by_time(graph: weft.Graph) -> None:
    with pytest.raises(GraphError, match=r"strategy\.temporal: the graph has no edge data 'time'"):
        weft.train(graph, "sage", strategy={**OPTIONS, "temporal": True}, task=LINKS, epochs=1)


@pytest.mark.slow
def test_a_typed_graph_is_trained_on_by_workers_as_by_one_process() -> None:
    graph = pair_jobs.pair_graph("typed both ways")
    told: dict[str, Any] = {"task": {**LINKS, "target": link_jobs.WRITES}, "epochs": 2, "hidden": 8}
    told["strategy"] = {**OPTIONS, "batch_size": 6}
    alone = weft.train(graph, "rgcn", **told)
    both = weft.train(graph, "rgcn", **told, workers=2)
    assert both.loss == pytest.approx(alone.loss, abs=1e-6)
    assert both.metrics["test"]["mrr"] == pytest.approx(alone.metrics["test"]["mrr"], abs=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samplers": 1}, r"strategy\.samplers: ranks that only sample have no pairs"),
        ({"closed": True}, r"strategy\.closed: negatives may be any nodes"),
        ({"seeds": "local"}, r"strategy\.seeds: a step hides the pairs of all workers"),
        ({"evaluate": [2, 2]}, r"strategy\.evaluate: pairs are scored from exact rows"),
        ({"sample_on": "gpu"}, r"strategy\.sample_on: a GPU cannot hide"),
        ({"store": "cached"}, r"strategy\.store: a cache counts how often batches of nodes"),
        ({"sampler": "labor"}, r"strategy\.sampler: 'labor' draws from all edges and cannot hide"),
    ],
)
def test_what_is_for_nodes_alone_is_refused_in_one_line(
    graph: weft.Graph, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(RecipeError, match=words) as told:
        weft.train(graph, "sage", strategy={**OPTIONS, **options}, task=LINKS, epochs=1)
    assert "\n" not in str(told.value)


def test_a_store_has_no_rows_of_other_types_to_score() -> None:
    graph, task = pair_jobs.pair_graph("typed"), {**LINKS, "target": link_jobs.WRITES}
    with pytest.raises(RecipeError, match=r"strategy\.store: with several node types"):
        weft.train(graph, "rgcn", strategy={**OPTIONS, "store": "memory"}, task=task, epochs=1)
