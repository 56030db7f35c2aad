"""Link prediction: what is scored, what a model may see, and that workers train what one process does."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

import weft
from weft.config import make_recipe
from weft.datasets import open_dataset
from weft.errors import GraphError, RecipeError
from weft.graph.ends import edge_ends
from weft.layers.base import GraphInfo
from weft.samplers.neighbor import NeighborSampler
from weft.strategies.single import Single
from weft.tasks import link_prediction, link_targets
from weft.tasks.base import EVALUATION, head_of, put_head
from weft.tasks.choose import TaskChoice
from weft.tasks.link_prediction import LinkPrediction
from weft.tasks.ranking import places
from weft.train.launch import run_recipe
from weft.train.trainer import Place

COMMUNITY = {"name": "community", "nodes": 120}


def links(**options: object) -> dict[str, object]:
    return {"name": "link_prediction", "width": 8, **options}


def trained(out: Path, **task: object) -> dict[str, dict[str, float]]:
    recipe = make_recipe(
        {
            "data": COMMUNITY,
            "task": links(**task),
            "model": {"name": "gcn", "hidden": 16},
            "train": {"epochs": 40, "lr": 0.02},
        }
    )
    return run_recipe(recipe, Place(out=out)).metrics


def cliques(count: int = 10, size: int = 8) -> weft.Graph:
    """Cliques in a ring, an edge from each to the next; a node's feature is which node it is."""
    nodes = count * size
    first, second = torch.triu_indices(nodes, nodes, offset=1)
    within = first // size == second // size
    ring = torch.arange(0, nodes, size)
    pairs = torch.cat([torch.stack([first, second])[:, within], torch.stack([ring, ring.roll(-1)])], 1)
    return weft.Graph.from_edges(torch.cat([pairs, pairs.flip(0)], 1), num_nodes=nodes, x=torch.eye(nodes))


class Fixed(torch.nn.Module):
    """A model whose rows are a parameter."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        rows = torch.randn(nodes, 8, generator=torch.Generator().manual_seed(0))
        self.rows = torch.nn.Parameter(rows)

    def forward(self, blocks: object, x: object) -> torch.Tensor:
        return self.rows


def test_true_pairs_come_to_stand_above_chance() -> None:
    settings = {"hidden": 16, "epochs": 40, "lr": 0.02, "task": links()}
    test = weft.train(cliques(), "gcn", **settings).metrics["test"]
    assert test["roc_auc"] > 0.85
    assert test["mrr"] > 0.3, "chance among 100 negatives is 0.05"


@pytest.mark.parametrize("score", ["dot", "distmult", "mlp"])
def test_a_scorer_with_weights_is_trained_and_kept(tmp_path: Path, score: str) -> None:
    trained(tmp_path / "run", score=score, loss="bpr")
    names = _weights(tmp_path / "run")
    assert any(name.startswith("task_head.") for name in names) is (score != "dot")


@pytest.mark.parametrize("batches", [False, True], ids=["the graph", "a batch"])
def test_rows_of_a_step_are_penalised_and_those_of_an_evaluation_are_not(batches: bool) -> None:
    graph = cliques(3, 5)
    options = links(
        negatives={"count": 2, "side": "both"}, score="distmult", loss={"name": "margin", "margin": 9.0}
    )
    plain: Any = TaskChoice.of(options).make(graph)
    kept: Any = TaskChoice.of({**options, "regularise": {"name": "l2", "weight": 0.5}}).make(graph)
    losses = []
    for task in (plain, kept):
        task.hides(batches)
        shown = task.prepared(graph)
        model = put_head(task, Fixed(graph.num_nodes), GraphInfo.of(shown), seed=0)
        held = task.targets(shown, lambda value: value)
        if batches:
            loader = task.make_loader(NeighborSampler(shown, [2]), batch_size=7, threads=0)
            batch = next(iter(loader))
            rows = model.rows[batch.nodes.seeds]
            losses.append(task.loss.each(task.of_batch(model, rows, batch), task.values_of_batch(batch)))
            pairs, ends = batch.pairs, model.rows
        else:
            outputs = held["train"].outputs(model, model.rows, lambda h, ids: h[ids], 0)
            losses.append(task.loss.each(outputs, held["train"].y))
            pairs, ends = task.pairs["train"], model.rows
            told = held["val"].outputs(model, model.rows, lambda h, ids: h[ids], EVALUATION)
            assert not held["val"].y.any(), "what is told of an evaluation is the loss of pairs alone"
            assert len(told) == 2 * len(task.pairs["val"]) or len(told) == len(task.pairs["val"])
    weight = head_of(model).weight
    size = ends[pairs.src].square().sum(1) + ends[pairs.dst].square().sum(1) + weight.square().sum()
    torch.testing.assert_close(losses[1] - losses[0], torch.cat([0.5 * size, 0.5 * size]))


def _weights(run: Path) -> list[str]:
    with safe_open(run / "model.safetensors", "pt") as file:
        return list(file.keys())


def test_pairs_of_validation_and_test_and_targets_are_no_messages() -> None:
    graph = open_dataset(**COMMUNITY)
    task = TaskChoice.of(links()).make(graph)
    task.hides(batches=False)
    shown = task.prepared(graph)
    src, dst, _ = edge_ends(shown)
    messages = {frozenset(pair) for pair in zip(src.tolist(), dst.tolist())}
    for split, pairs in task.pairs.items():
        targets = {frozenset(pair) for pair in zip(pairs.src.tolist(), pairs.dst.tolist())}
        assert not targets & messages, f"{split} pairs, or their reverses, are messages"


@pytest.mark.parametrize(
    "drawn",
    [
        {"name": "uniform", "count": 3},
        {"name": "joint", "count": 30},
        {"name": "hard", "pool": 30, "count": 4},
        {"name": "inbatch"},
    ],
    ids=lambda drawn: str(drawn["name"]),
)
def test_scores_of_both_sides_are_those_of_a_loop(drawn: dict[str, Any]) -> None:
    graph = cliques(3, 5)
    wanted = {**drawn, "side": "both", "exclude": "known"}
    task: Any = TaskChoice.of(links(negatives=wanted, score="bilinear")).make(graph)
    task.hides(batches=False)
    train = task.targets(task.prepared(graph), lambda value: value)["train"]
    model = put_head(task, torch.nn.Linear(1, 1), GraphInfo.of(graph), seed=0)
    h = torch.randn(graph.num_nodes, 8, generator=torch.Generator().manual_seed(0))
    found = train.outputs(model, h, lambda rows, ids: rows[ids], 0)
    pairs, held = task.pairs["train"], task.draw(task.pairs["train"], 0)
    scores = h @ head_of(model).weight[0] @ h.t()
    assert bool(held.masked.any()) is (drawn["name"] != "uniform"), "own negatives are drawn until they are"
    assert train.count == len(found) == 2 * len(pairs)
    for row in range(2 * len(pairs)):
        src, dst = int(pairs.src[row % len(pairs)]), int(pairs.dst[row % len(pairs)])
        nodes = held.nodes if held.shared else held.nodes[row]
        negative = scores[src, nodes] if row < len(pairs) else scores[nodes, dst]
        negative = negative.masked_fill(held.masked[row], -torch.inf)
        if drawn["name"] == "hard":
            negative = negative.sort(descending=True).values[:4]
        expected = torch.cat([scores[src, dst][None], negative])
        torch.testing.assert_close(found[row], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("side", ["dst", "both"])
def test_an_evaluation_holds_the_rows_of_a_piece_of_its_negatives(
    side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = open_dataset(**COMMUNITY)
    task = TaskChoice.of(links(evaluate={"count": 20, "side": side}, score="bilinear")).make(graph)
    task.hides(batches=False)
    held = task.targets(task.prepared(graph), lambda value: value)["test"]
    model = put_head(task, torch.nn.Linear(1, 1), GraphInfo.of(graph), seed=0)
    h, sizes = torch.randn(graph.num_nodes, 8), []
    head_of(model).register_forward_pre_hook(
        lambda _, given: sizes.append(max(each.numel() for each in given if each is not None))
    )

    def outputs() -> torch.Tensor:
        return held.outputs(model, h, lambda rows, ids: rows[ids], EVALUATION)

    with torch.no_grad():
        whole = outputs()
        sizes.clear()
        monkeypatch.setattr(link_targets, "PIECE", 1000)
        # not bit by bit: a product of fewer rows may add up in another order
        torch.testing.assert_close(outputs(), whole)
    assert max(sizes) <= 1000 < len(held) * 20 * 8


@pytest.mark.parametrize("side", ["dst", "both"])
def test_places_among_all_nodes_come_from_a_few_pairs_at_a_time(
    side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = open_dataset(**COMMUNITY)
    task = TaskChoice.of(links(evaluate={"name": "all", "exclude": "known", "side": side})).make(graph)
    task.hides(batches=False)
    held = task.targets(task.prepared(graph), lambda value: value)["test"]
    model = put_head(task, torch.nn.Linear(1, 1), GraphInfo.of(graph), seed=0)
    h, sides = torch.randn(graph.num_nodes, 8), 2 if side == "both" else 1
    with torch.no_grad():
        whole = held.outputs(model, h, lambda rows, ids: rows[ids], EVALUATION)
        monkeypatch.setattr(link_targets, "PIECE", 7 * graph.num_nodes)
        some = [outputs for outputs, _ in held.pieces(model, h, lambda rows, ids: rows[ids])]
    assert {len(outputs) for outputs in some[:-1]} == {7 * sides}
    assert sum(map(len, some)) == len(whole)
    found = torch.cat([places(outputs)[: len(outputs) // sides] for outputs in some])
    assert torch.equal(found, places(whole)[: len(held)])
    replaced = torch.cat([places(outputs)[len(outputs) // sides :] for outputs in some])
    assert torch.equal(replaced, places(whole)[len(held) :])


@pytest.mark.parametrize("strategy", ["single", {"name": "halo", "parts": 2, "partitioner": "range"}])
def test_a_run_that_ranks_among_all_nodes_scores_by_pieces(
    strategy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"hidden": 8, "epochs": 1, "task": links(evaluate="all"), "strategy": strategy}
    graph = open_dataset(**COMMUNITY)
    whole = weft.train(graph, "gcn", **told).metrics["test"]
    monkeypatch.setattr(link_targets, "PIECE", 500)
    few = weft.train(graph, "gcn", **told).metrics["test"]
    assert few.pop("loss") == pytest.approx(whole.pop("loss"), rel=1e-6)
    assert few == whole
    assert few["negatives"] == 119
    monkeypatch.setattr(link_prediction, "MOST", 100)
    without = weft.train(graph, "gcn", **told).metrics["test"]
    assert {*few} - {*without} == {"roc_auc", "ap", "ogb_hits@20", "ogb_hits@50", "ogb_hits@100"}


@pytest.mark.parametrize("evaluate", ["uniform", "joint", "all"])
@pytest.mark.parametrize("score", ["dot", "bilinear", "cosine"])
def test_nodes_with_the_same_row_tie_whichever_way_they_are_scored(score: str, evaluate: str) -> None:
    graph = open_dataset(**COMMUNITY)
    negatives = {"name": evaluate} | ({} if evaluate == "all" else {"count": 37})
    task = TaskChoice.of(links(evaluate=negatives, score=score, width=64)).make(graph)
    task.hides(batches=False)
    held = task.targets(task.prepared(graph), lambda value: value)["test"]
    model = put_head(task, torch.nn.Linear(1, 1), GraphInfo.of(graph), seed=0)
    h = torch.randn(1, 64, generator=torch.Generator().manual_seed(1)).repeat(graph.num_nodes, 1)
    with torch.no_grad():
        outputs = held.outputs(model, h, lambda rows, ids: rows[ids], EVALUATION)
    assert outputs.dtype == torch.float32
    tied = (outputs == outputs[:, :1]) | outputs.isinf()
    assert bool(tied.all()), f"{float((~tied).float().mean()):.0%} of equal scores differ by rounding"


def test_negatives_of_an_evaluation_stay_the_same() -> None:
    graph = open_dataset(**COMMUNITY)
    task = TaskChoice.of(links()).make(graph)
    task.hides(batches=False)
    held = task.targets(task.prepared(graph), lambda value: value)
    model, h = torch.nn.Linear(1, 1), torch.randn(graph.num_nodes, 8)
    put_head(task, model, GraphInfo.of(graph), seed=0)

    def outputs(epoch: int) -> torch.Tensor:
        return held["val"].outputs(model, h, lambda rows, ids: rows[ids], epoch)

    assert torch.equal(outputs(EVALUATION), outputs(EVALUATION))
    assert not torch.equal(outputs(0), outputs(1)), "training draws anew in every epoch"


@pytest.mark.parametrize("side", ["dst", "both"])
def test_a_batch_s_ends_are_corrected_for_how_often_they_come_also_the_true_one(side: str) -> None:
    graph = open_dataset(**COMMUNITY)
    task = TaskChoice.of(links(negatives={"name": "inbatch", "side": side}, loss="infonce")).make(graph)
    task.hides(batches=False)
    train = task.targets(task.prepared(graph), lambda value: value)["train"]
    model = put_head(task, torch.nn.Linear(1, 1), GraphInfo.of(graph), seed=0)
    train.outputs(model, torch.randn(graph.num_nodes, 8), lambda rows, ids: rows[ids], 0)
    ends = {"dst": task.pairs["train"].dst, "src": task.pairs["train"].src}
    for place, name in enumerate(("dst", "src") if side == "both" else ("dst",)):
        often = torch.bincount(ends[name])[ends[name]] / len(ends[name])
        rows = train.y[place * len(often) : (place + 1) * len(often)]
        columns = slice(1 + place * len(often), 1 + (place + 1) * len(often))
        assert torch.allclose(rows[:, 0], often.log())
        assert torch.allclose(rows[:, columns], often.log().expand(len(often), -1))


def test_every_epoch_on_a_whole_graph_has_negatives_of_its_own() -> None:
    graph = cliques(3, 5)
    task = TaskChoice.of(links(hide="none")).make(graph)
    strategy = Single(task.prepared(graph), task=task)
    model = put_head(task, Fixed(graph.num_nodes), GraphInfo.of(graph), seed=0)
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    losses = [strategy.epoch(model, still) for _ in range(3)]
    held, h = strategy.targets["train"], model.rows.detach()
    for epoch, loss in enumerate(losses):
        outputs = held.outputs(model, h, lambda rows, ids: rows[ids], epoch)
        assert loss == pytest.approx(float(task.loss.summed(outputs, held.y)) / held.count)
    assert len({*losses}) == 3


def test_the_ends_of_all_pairs_are_in_the_batch_whoever_holds_them() -> None:
    graph = cliques(3, 5)
    task: Any = TaskChoice.of(links(negatives="inbatch")).make(graph)
    task.hides(batches=False)
    whole = task.targets(task.prepared(graph), lambda value: value)["train"]
    some = torch.arange(0, len(whole), 3)
    part = task.make_targets(task.pairs["train"].take(some), "train")
    model = put_head(task, torch.nn.Linear(1, 1), GraphInfo.of(graph), seed=0)
    h = torch.randn(graph.num_nodes, 8)
    all_rows, own = (each.outputs(model, h, lambda rows, ids: rows[ids], 0) for each in (whole, part))
    torch.testing.assert_close(own, all_rows[some])


@pytest.mark.parametrize("name", ["saint", "sliced"])
def test_a_strategy_that_knows_no_pairs_is_refused(name: str) -> None:
    recipe = make_recipe({"data": COMMUNITY, "task": links(), "strategy": {"name": name}})
    with pytest.raises(RecipeError, match=f"'{name}' does not train on pairs"):
        run_recipe(recipe, Place())


def test_a_graph_that_is_fixed_hides_no_batches() -> None:
    recipe = make_recipe({"data": COMMUNITY, "task": links(hide="batch"), "strategy": {"name": "single"}})
    with pytest.raises(RecipeError, match=r"task\.hide: this strategy has one graph"):
        run_recipe(recipe, Place())


@pytest.mark.parametrize("score", ["dot", "cosine", "distmult", "bilinear"])
@pytest.mark.parametrize("width", [17, 64, 128])
def test_a_model_that_tells_no_node_from_another_ranks_by_chance(score: str, width: int) -> None:
    graph = cliques()
    task = TaskChoice.of(links(width=width, score=score, evaluate={"name": "uniform", "side": "both"})).make(
        graph, loss="auto"
    )
    task.hides(False)
    shown = task.prepared(graph)
    model = torch.nn.Identity()
    put_head(task, model, GraphInfo.of(shown), seed=1)
    row = torch.randn(width, generator=torch.Generator().manual_seed(1))
    held = task.targets(shown, lambda value: value)["test"]
    scores = held.outputs(model, row.expand(80, -1).contiguous(), lambda h, ids: h[ids], EVALUATION)
    known = scores[:, 1:].isfinite()
    assert torch.equal(scores[:, 1:][known], scores[:, :1].expand_as(known)[known])


def test_an_evaluation_scores_no_training_pairs() -> None:
    graph = open_dataset(**COMMUNITY)
    task = TaskChoice.of(links()).make(graph)
    task.hides(batches=False)
    held = task.targets(task.prepared(graph), lambda value: value)
    assert [split for split, targets in held.items() if targets.scored] == ["val", "test"]


def test_negatives_of_training_say_nothing_of_links_to_be_found() -> None:
    graph = open_dataset(**COMMUNITY)
    task = TaskChoice.of(links(negatives={"name": "uniform", "count": 5, "exclude": "known"})).make(graph)
    assert isinstance(task, LinkPrediction)
    task.hides(batches=False)
    task.prepared(graph)
    train, test = task.pairs["train"], task.pairs["test"]
    assert bool(task.known["train"].hits(train.src, train.dst).all())
    assert not bool(task.known["train"].hits(test.src, test.dst).any()), (
        "a negative may be a link of the test"
    )
    assert bool(task.known["all"].hits(test.src, test.dst).all()), "where links are evaluated it may not"


def test_float16_is_refused_where_a_head_learns(tmp_path: Path) -> None:
    recipe = make_recipe(
        {"data": COMMUNITY, "task": links(score="distmult"), "train": {"precision": "float16", "epochs": 1}}
    )
    with pytest.raises(RecipeError, match="float16 has no scale for what 'link_prediction' learns"):
        run_recipe(recipe, Place())


def knowledge(nodes: int = 40) -> weft.Graph:
    """Three relations between nodes of one type, the next, the double and one beyond, in given splits."""
    made = torch.Generator().manual_seed(0)
    src = torch.arange(nodes)
    ends = {"next": (src + 1) % nodes, "double": 2 * src % nodes, "third": (src + nodes // 3) % nodes}
    edges: dict[Any, Any] = {}
    for name, dst in ends.items():
        split = (torch.rand(nodes, generator=made) * 5).long().clamp(max=3) - 1
        edges["thing", name, "thing"] = {"edge_index": torch.stack([src, dst]), "split": split.clamp(min=0)}
    return weft.Graph.from_types({"thing": {"num_nodes": nodes, "x": torch.eye(nodes)}}, edges)


FILTERED = {"name": "all", "filtered": True}


@pytest.mark.slow
def test_filtered_ranks_are_told_with_raw_ones_by_end_and_by_relation_on_any_number_of_workers() -> None:
    task = links(score="complex", evaluate=FILTERED, negatives={"name": "joint", "count": 8, "side": "both"})
    told: dict[str, Any] = {"hidden": 16, "epochs": 3, "task": task, "seed": 1}
    one, two = (weft.train(knowledge(), "rgcn", workers=workers, **told) for workers in (1, 2))
    assert {"mrr", "hits@1", "hits@3", "hits@10", "raw_mrr", "raw_hits@10", "negatives"} <= one.scores.keys()
    assert one.scores["raw_mrr"] < one.scores["mrr"]
    assert one.scores == pytest.approx(two.scores)
    found = one.details["test"]
    ends, relations = found["by_end"], found["by_relation"]
    assert [*ends] == ["dst", "src"]
    assert one.scores["mrr"] == pytest.approx((ends["dst"]["mrr"] + ends["src"]["mrr"]) / 2)
    assert {*relations} == {"thing next thing", "thing double thing", "thing third thing"}
    pairs = sum(held["pairs"] for held in relations.values())
    assert pairs == ends["dst"]["pairs"] + ends["src"]["pairs"]
    mean = sum(held["pairs"] * held["mrr"] for held in relations.values()) / pairs
    assert mean == pytest.approx(one.scores["mrr"])
    for name in ("raw_mrr", "raw_hits@10", "hits@3"):
        held = [
            (each[end]["pairs"], each[end][name]) for each in relations.values() for end in ("src", "dst")
        ]
        assert sum(count * value for count, value in held) / pairs == pytest.approx(one.scores[name])
    assert two.details["test"]["by_end"]["src"] == pytest.approx(ends["src"]), "every pair counts once"
    assert json.loads(json.dumps(one.to_dict() | {"out": None}))["details"]["test"]["by_end"] == ends


def test_what_is_true_in_any_split_is_left_out_of_filtered_ranks() -> None:
    graph = knowledge()
    task: Any = TaskChoice.of(links(evaluate=FILTERED)).make(graph)
    task.hides(batches=False)  # a share of training pairs are messages alone, and true all the same
    task.prepared(graph)
    assert bool(task.known["all"].hits(*edge_ends(graph)).all())
    assert len(task.known["all"]) == len(torch.unique(torch.stack(edge_ends(graph)), dim=1).T)


def test_filtered_ranks_have_no_scores_for_metrics_of_ones_own() -> None:
    with pytest.raises(RecipeError, match=r"filtered ranks have no outputs for mine"):
        weft.train(
            knowledge(),
            "rgcn",
            epochs=1,
            task=links(evaluate=FILTERED),
            metrics={"mine": lambda outputs, y: 1.0},
        )


def test_workers_train_and_score_what_one_process_does() -> None:
    graph, told = open_dataset(**COMMUNITY), {"hidden": 8, "epochs": 3, "task": links(), "strategy": "halo"}
    one, two = (weft.train(graph, "gcn", workers=workers, **told) for workers in (1, 2))
    assert two.loss == pytest.approx(one.loss, rel=1e-5)
    assert two.metrics.keys() == one.metrics.keys() == {"val", "test"}
    for name in ("mrr", "hits@10", "roc_auc", "ap", "ogb_hits@20"):
        assert two.scores[name] == pytest.approx(one.scores[name], abs=5e-3), name


def pairs_of(**options: object) -> dict[str, set[tuple[int, int]]]:
    """Return the pairs of each split of a graph that stays the same in every step."""
    graph = open_dataset(**COMMUNITY)
    task = TaskChoice.of(links(**options)).make(graph)
    task.hides(batches=False)
    task.prepared(graph)
    return {split: set(zip(held.src.tolist(), held.dst.tolist())) for split, held in task.pairs.items()}


def test_the_share_of_disjoint_targets_and_the_seed_of_a_split_are_those_asked_for() -> None:
    all_pairs = pairs_of(hide="none")
    few, many = (pairs_of(share=share) for share in (0.1, 0.6))
    assert len(few["train"]) == pytest.approx(0.1 * len(all_pairs["train"]), abs=2)
    assert len(many["train"]) == pytest.approx(0.6 * len(all_pairs["train"]), abs=2)
    assert few["test"] == many["test"] == all_pairs["test"], "what is tested does not depend on it"
    assert pairs_of(split={"seed": 1})["test"] != all_pairs["test"]


def test_negatives_can_be_nodes_that_were_there_also_on_workers(tmp_path: Path) -> None:
    graph = open_dataset(**COMMUNITY)
    came = torch.arange(120)
    timed = weft.Graph.from_types(
        {"node": {"x": graph.x, "time": came}},
        {
            ("node", "to", "node"): {
                "edge_index": graph.edge_index,
                "time": came[graph.edge_index].max(0).values,
            }
        },
    )
    options = links(negatives={"name": "uniform", "count": 4, "temporal": True})
    made, read = (TaskChoice.of(options).make(timed) for _ in range(2))
    for task in (made, read):
        assert isinstance(task, LinkPrediction)
        task.hides(batches=True)
    shown = made.prepared(timed)
    for name, held in made.files().items():
        (tmp_path / name).write_bytes(held)
    read.read(tmp_path)
    for task in (made, read):
        task.targets(shown, lambda value: value)
        pairs = task.pairs["train"]
        drawn = task.draw(pairs, 0)
        assert bool((came[drawn.nodes] <= pairs.time[:, None])[~drawn.masked].all())
        assert bool((came[drawn.nodes] > 60).any())


@pytest.mark.parametrize(
    ("split", "options", "told"),
    [
        ([1, 1, 1, 1], {"hide": "none"}, "no pair is left to train on; give another task.split$"),
        ([0, 0, 0, 1], {"hide": "disjoint", "share": 0.01}, "task.split, or more than task.share = 0.01$"),
    ],
)
def test_a_split_that_leaves_nothing_to_train_on_is_refused(
    split: list[int], options: dict[str, object], told: str
) -> None:
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    given = weft.Graph.from_edges(edges, x=torch.eye(4), edge_data={"split": torch.tensor(split)})
    with pytest.raises(GraphError, match=told):
        weft.train(given, "gcn", epochs=1, task=links(**options))


@pytest.mark.parametrize(
    ("split", "named"),
    [
        ({"by": "time"}, "task.split.val: by = 'time' needs val and test"),
        ({"by": "time", "val": 3}, "task.split.test: by = 'time' needs"),
        ({"by": "random", "key": "year"}, "task.split.key: by = 'random' does not read it"),
        ({"by": "given", "val": 0.4}, "task.split.val: by = 'given' does not read it"),
    ],
    ids=str,
)
def test_an_option_that_the_split_does_not_read_is_refused(split: dict[str, Any], named: str) -> None:
    with pytest.raises(RecipeError, match=named):
        LinkPrediction(split=split)


def test_a_share_that_nothing_hides_by_is_refused() -> None:
    LinkPrediction(share=0.5).hides(False)
    for batches, hide in ((True, "auto"), (False, "none")):
        with pytest.raises(RecipeError, match=r"task\.share: is that of hide = 'disjoint'"):
            LinkPrediction(share=0.5, hide=hide).hides(batches)


@pytest.mark.parametrize("loss", ["auto", "logistic", {"name": "self_adversarial", "temperature": 0.5}])
def test_a_distance_without_an_offset_is_refused_where_the_sign_of_a_score_counts(loss: Any) -> None:
    for score in ("transe", {"name": "rotate", "norm": "l2"}):
        with pytest.raises(RecipeError, match=r"task\.score\.offset: .* is a distance"):
            LinkPrediction(score=score, loss=loss)
    LinkPrediction(score={"name": "transe", "offset": 9.0}, loss=loss)
    for free in ("softmax", "margin", "bpr"):
        LinkPrediction(score="transe", loss=free)


def test_what_negatives_cannot_be_is_told_with_its_option() -> None:
    task = TaskChoice.of(links(negatives={"name": "uniform", "temporal": True})).make(cliques())
    task.hides(batches=False)
    task.targets(task.prepared(cliques()), lambda value: value)
    assert isinstance(task, LinkPrediction)
    with pytest.raises(GraphError, match=r"^task\.negatives: temporal, and the nodes have no 'time'"):
        task.draw(task.pairs["train"], 0)
    with pytest.raises(
        RecipeError, match=r"^task\.evaluate: 'all' has as many as there are; leave count out"
    ):
        LinkPrediction(evaluate={"name": "all", "count": 3})
