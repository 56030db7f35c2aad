"""Pairs and partners that a run of links writes, held to a forward over the whole graph."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from rated import rated
from torch import Tensor

import weft
from weft.cli.main import main
from weft.errors import InputError
from weft.graph import Graph
from weft.pipeline.infer.scoring import Scoring, open_run
from weft.tasks.base import EVALUATION, head_of

IDS = [f"n{row:03d}" for row in range(40)]


def web() -> Graph:
    """Forty nodes with ids, 160 pairs, both ways."""
    made = torch.Generator().manual_seed(3)
    ends = torch.randint(40, (2, 160), generator=made)
    ends = ends[:, ends[0] != ends[1]]
    x = torch.randn(40, 4, generator=made)
    return Graph.from_edges(torch.cat([ends, ends.flip(0)], 1), num_nodes=40, x=x, node_ids=IDS)


def shop() -> Graph:
    """Users who like and buy items."""
    made = torch.Generator().manual_seed(5)

    def drawn(count: int) -> Tensor:
        ends = [torch.randint(size, (count,), generator=made) for size in (12, 9)]
        return torch.stack(ends)

    nodes: dict[str, Any] = {
        "item": {"x": torch.randn(9, 3, generator=made), "node_ids": [f"i{row}" for row in range(9)]},
        "user": {"x": torch.randn(12, 3, generator=made), "node_ids": list(range(100, 112))},
    }
    likes, buys = drawn(30), drawn(25)
    return Graph.from_types(
        nodes,
        {
            ("user", "likes", "item"): likes,
            ("user", "buys", "item"): buys,
            ("item", "liked", "user"): likes.flip(0),
            ("item", "bought", "user"): buys.flip(0),
        },
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of links on `web`, which lies beside it."""
    folder = tmp_path_factory.mktemp("links")
    web().save(folder / "g")
    task = {"name": "link_prediction", "width": 6, "score": "bilinear"}
    weft.train(weft.load(folder / "g"), "sage", hidden=8, epochs=3, task=task, out=folder / "run")
    kept = json.loads((folder / "run" / "run.json").read_text())
    kept["recipe"]["data"] = {"path": str(folder / "g")}
    (folder / "run" / "run.json").write_text(json.dumps(kept))
    return folder / "run"


def rows_of(scoring: Scoring) -> Tensor:
    with torch.no_grad():
        rows: Tensor = scoring.model.eval()(scoring.graph.block(), scoring.graph.x)
    return rows


def scores_of(scoring: Scoring, relation: int | None = None) -> Tensor:
    """All scores of sources by targets."""
    h, head = rows_of(scoring), head_of(scoring.model)
    kind = None if relation is None else torch.full((len(h),), relation)
    with torch.no_grad():
        found: Tensor = head.against(h, h, kind)  # type: ignore[union-attr, operator]
    return found


@pytest.mark.parametrize("how", [["--engine", "torch"], ["--engine", "duckdb"], ["--fanout=-1,-1"]])
def test_given_pairs_are_scored_by_the_users_ids(run: Path, tmp_path: Path, how: list[str]) -> None:
    (tmp_path / "pairs.csv").write_text("source,target\nn003,n001\nn000,n039\nn003,n001\n")
    words = ["infer", str(run), "--pairs", str(tmp_path / "pairs.csv"), "--out", str(tmp_path / "o")]
    assert main([*words, *how]) == 0
    table = pq.read_table(tmp_path / "o" / "pairs.parquet").to_pydict()
    assert [table["source"], table["target"]] == [["n003", "n000", "n003"], ["n001", "n039", "n001"]]
    expected = scores_of(open_run(run))[[3, 0, 3], [1, 39, 1]]
    torch.testing.assert_close(torch.tensor(table["score"]), expected)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("every", [False, True])
def test_partners_are_the_best_of_all_candidates(
    run: Path, tmp_path: Path, known: bool, every: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "of.csv").write_text("id\nn007\nn002\n")
    words = ["infer", str(run), "--partners", "3", "--of", str(tmp_path / "of.csv"), "--memory", "4KiB"]
    more = [*(["--include-known"] if known else []), *(["--all-edges"] if every else [])]
    assert main([*words, *more, "--out", str(tmp_path / "o")]) == 0
    assert ("that training showed" in capsys.readouterr().err) is not every
    table = pq.read_table(tmp_path / "o" / "partners.parquet").to_pydict()
    scoring = open_run(run, all_edges=every)
    assert (scoring.graph.num_edges == scoring.data.num_edges) is every, "else some pairs are hidden"
    scores = scores_of(scoring)
    scores.fill_diagonal_(-torch.inf)
    if not known:
        src, dst = scoring.data.edge_index
        scores[src, dst] = -torch.inf
    best = scores[[7, 2]].topk(3)
    assert table["source"] == ["n007"] * 3 + ["n002"] * 3
    assert table["rank"] == [1, 2, 3] * 2
    assert table["target"] == [IDS[place] for place in best.indices.flatten().tolist()]
    torch.testing.assert_close(torch.tensor(table["score"]), best.values.flatten())


def test_without_pairs_the_rows_of_all_nodes_are_written(run: Path, tmp_path: Path) -> None:
    assert main(["infer", str(run), "--out", str(tmp_path / "o"), "--json"]) == 0
    table = pq.read_table(tmp_path / "o").to_pydict()
    assert table["id"] == IDS
    torch.testing.assert_close(torch.tensor(table["embedding"]), rows_of(open_run(run)))


def test_scores_of_test_pairs_are_those_that_the_run_evaluated(run: Path, tmp_path: Path) -> None:
    scoring = open_run(run)
    pairs = scoring.task.pairs["test"]
    ids = {"source": [IDS[node] for node in pairs.src], "target": [IDS[node] for node in pairs.dst]}
    pq.write_table(pa.table(ids), tmp_path / "pairs.parquet")
    words = ["infer", str(run), "--pairs", str(tmp_path / "pairs.parquet"), "--out", str(tmp_path / "o")]
    assert main(words) == 0
    scores = pq.read_table(tmp_path / "o" / "pairs.parquet").column("score").to_numpy()
    test = scoring.task.targets(scoring.graph, lambda value: value)["test"]
    rows = rows_of(scoring)
    with torch.no_grad():
        outputs = test.outputs(scoring.model, rows, lambda h, nodes: h[nodes], EVALUATION)
    torch.testing.assert_close(torch.tensor(scores), outputs[:, 0])
    told = json.loads((run / "run.json").read_text())["summary"]["metrics"]["test"]
    assert scoring.task.metrics["roc_auc"](outputs, test.y) == pytest.approx(told["roc_auc"])


@pytest.mark.parametrize("name", ["edge_classification", "edge_regression"])
def test_given_edges_are_told_their_class_or_value(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, out = rated(), tmp_path / "o"
    graph.save(tmp_path / "g")
    label = "label" if name == "edge_classification" else "rating"
    task = {"name": name, "width": 4, "label": label, "edge_data": ["known"]}
    summary = weft.train(graph, "sage", hidden=4, epochs=3, task=task, out=tmp_path / "run")
    test = open_run(tmp_path / "run", tmp_path / "g").task.pairs["test"]
    assert test.y is not None
    columns = {"source": test.src.numpy(), "target": test.dst.numpy(), "known": test.data["known"].numpy()}
    pq.write_table(pa.table(columns), tmp_path / "pairs.parquet")
    pq.write_table(pa.table(columns).drop_columns("known"), tmp_path / "few.parquet")
    words = ["infer", str(tmp_path / "run"), "--graph", str(tmp_path / "g"), "--out", str(out)]
    assert main([*words, "--pairs", str(tmp_path / "pairs.parquet")]) == 0
    table = pq.read_table(out / "pairs.parquet")
    if name == "edge_classification":
        right = torch.tensor(table["prediction"].to_pylist()) == test.y
        assert float(right.float().mean()) == pytest.approx(summary.metrics["test"]["accuracy"])
    else:
        far = torch.tensor(table["value"].to_pylist(), dtype=torch.float64) - test.y
        assert float(far.square().mean().sqrt()) == pytest.approx(summary.metrics["test"]["rmse"], rel=1e-5)
    capsys.readouterr()
    more = ["--overwrite", "--pairs", str(tmp_path / "few.parquet")]
    assert main([*words, *more]) == 2
    assert "few.parquet: no column 'known'; it has: source, target" in capsys.readouterr().err
    assert main([*words, "--overwrite", "--partners", "2"]) == 2
    assert "ends with EdgeHead" in capsys.readouterr().err


def test_relations_are_told_by_name_and_partners_are_of_the_other_type(tmp_path: Path) -> None:
    graph = shop()
    graph.save(tmp_path / "g")
    both = ["user likes item", "user buys item"]
    task = {"name": "link_prediction", "width": 4, "score": "distmult", "target": both}
    weft.train(graph, "rgcn", hidden=4, epochs=2, task=task, out=tmp_path / "run")
    base = ["infer", str(tmp_path / "run"), "--graph", str(tmp_path / "g")]
    pairs = pa.table({"source": [103, 101], "target": ["i4", "i0"], "relation": ["buys", "user likes item"]})
    pq.write_table(pairs, tmp_path / "pairs.parquet")
    assert main([*base, "--pairs", str(tmp_path / "pairs.parquet"), "--out", str(tmp_path / "o")]) == 0
    scoring = open_run(tmp_path / "run", tmp_path / "g")
    kinds = {name: graph.edge_types.index(("user", name, "item")) for name in ("likes", "buys")}
    first = graph.rows_of_type("user").start
    by = {name: scores_of(scoring, number) for name, number in kinds.items()}
    expected = torch.stack([by["buys"][first + 3, 4], by["likes"][first + 1, 0]])
    table = pq.read_table(tmp_path / "o" / "pairs.parquet").to_pydict()
    torch.testing.assert_close(torch.tensor(table["score"]), expected)
    assert table["relation"] == ["user buys item", "user likes item"]
    assert table["source_type"] == ["user", "user"]
    assert main([*base, "--partners", "2", "--relation", "buys", "--out", str(tmp_path / "p")]) == 0
    found = pq.read_table(tmp_path / "p" / "partners.parquet").to_pydict()
    assert set(found["target_type"]) == {"item"}
    asked = by["buys"][first : first + 12, :9].clone()
    src, dst = graph.edge_index[:, graph.given_edge_type() == kinds["buys"]]
    asked[src - first, dst] = -torch.inf
    best = asked.topk(2).indices.flatten().tolist()
    assert found["target"] == [f"i{place}" for place in best]


def test_in_python_pairs_and_partners_are_those_of_the_graph_given() -> None:
    graph = web()
    task = {"name": "link_prediction", "width": 6, "score": "mlp"}
    model = weft.train(graph, "sage", hidden=8, epochs=2, task=task).model
    rows, head = weft.infer(model, graph).tensor(), head_of(model)
    assert head is not None
    with torch.no_grad():
        scores = head.against(rows, rows)  # type: ignore[operator]
    found = weft.score_pairs(model, graph, [3, 0], [1, 39])
    torch.testing.assert_close(found, scores[[3, 0], [1, 39]])
    scores.fill_diagonal_(-torch.inf)
    src, dst = graph.edge_index
    scores[src, dst] = -torch.inf
    best = weft.partners(model, graph, 4, of=[5, 1])
    assert best.ids.tolist() == scores[[5, 1]].topk(4).indices.tolist()
    with pytest.raises(InputError, match=r"source and target: 1 and 2 nodes"):
        weft.score_pairs(model, graph, [3], [1, 2])
    with pytest.raises(InputError, match=r"source: expected ids 0 … 39, of 'node', got -1"):
        weft.score_pairs(model, graph, [-1], [1])
    with pytest.raises(InputError, match="says nothing of pairs"):
        weft.partners(weft.nn.Stack(4, 3, layer="sage"), graph, 2)


def test_what_cannot_be_asked_of_pairs_is_one_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    labelled = Graph.from_edges([[0, 1], [1, 0]], x=torch.eye(2), y=[0, 1], train_mask=[True, True])
    labelled.save("labelled")
    weft.train(labelled, "sage", hidden=2, epochs=1, out="nodes")
    for name, text in {
        "good.csv": "source,target\nn001,n002\n",
        "unknown.csv": "source,target\nn001,n999\n",
        "narrow.csv": "source\nn001\n",
        "relation.csv": "source,target,relation\nn001,n002,hates\n",
    }.items():
        Path(name).write_text(text)
    before = {path.name for path in tmp_path.iterdir()}
    links, nodes = [str(run)], ["nodes", "--graph", "labelled"]
    for words, message in (
        ([*links, "--pairs", "unknown.csv"], "unknown.csv: no node has the id 'n999'"),
        ([*links, "--pairs", "narrow.csv"], "narrow.csv: no column 'target'; it has: source"),
        ([*links, "--pairs", "relation.csv"], "relation.csv: relation: 'hates' is none of 'node edge node'"),
        ([*links, "--pairs", "absent.csv"], "absent.csv: no such file or folder"),
        ([*links, "--partners", "0"], "--partners: expected a number of at least 1, got 0"),
        ([*links, "--partners", "2", "--of", "narrow.csv", "--pairs", "good.csv"], "ask for one of them"),
        ([*links, "--partners", "2", "--relation", "hates"], "--relation: 'hates' is none of"),
        ([*links, "--of", "good.csv"], "--of is for --partners K"),
        ([*links, "--pairs", "good.csv", "--include-known"], "--include-known is for --partners K"),
        ([*links, "--pairs", "good.csv", "--nodes", "good.csv"], "--nodes: leave it out with --pairs"),
        ([*nodes, "--pairs", "good.csv"], "--pairs: the run learned node_classification, which says nothing"),
        ([*nodes, "--partners", "2"], "--partners: the run learned node_classification"),
        ([*nodes, "--all-edges"], "--all-edges: nodes learned node_classification"),
    ):
        assert main(["infer", *words, "--out", "o"]) == 2, words
        told = capsys.readouterr().err
        assert message in told, told
        assert told.count("\n") == 1, told
        assert {path.name for path in tmp_path.iterdir()} == before
