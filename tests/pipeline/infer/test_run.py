"""Rounds of inference, in torch and on engines, give what one forward over the whole graph does."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import torch
from spark import GROUP
from torch import Tensor, nn

import weft
from weft.cli.main import main
from weft.errors import InputError
from weft.graph import Graph, SparseFeatures
from weft.layers.base import GraphInfo, Layer
from weft.layers.stack import Stack
from weft.pipeline.engines.base import Engine, open_engine
from weft.pipeline.infer import rounds as infer_rounds
from weft.pipeline.infer import run as infer
from weft.pipeline.infer import tables as infer_tables
from weft.pipeline.infer.asked import asked_nodes
from weft.pipeline.infer.run import Setting, infer_model, model_scoring
from weft.pipeline.infer.write import EMBEDDINGS
from weft.train.inference import stages
from weft.train.model import adapt

MADE = torch.Generator().manual_seed(0)
EDGES = torch.randint(60, (2, 500), generator=MADE)
X = torch.randn(61, 6, generator=MADE)  # the last node has no edges
Y = [0, 1, 2] * 20 + [0]


def plain(**data: Any) -> Graph:
    return Graph.from_edges(EDGES, num_nodes=61, **({"x": X, "y": Y} | data))


def typed() -> Graph:
    ids = [f"p{row}" for row in range(20)]
    return Graph.from_types(
        {"author": {"num_nodes": 9}, "paper": {"x": X[:20], "y": [0, 1] * 10, "node_ids": ids}},
        {
            ("author", "writes", "paper"): torch.stack([EDGES[0] % 9, EDGES[1] % 20]),
            ("paper", "by", "author"): torch.stack([EDGES[1] % 20, EDGES[0] % 9]),
        },
    )


def stack(graph: Graph, name: str, **options: Any) -> Stack:
    info = GraphInfo.of(adapt(graph, name))
    width = info.in_features if len(info.node_types) > 1 else info.in_features["node"]
    torch.manual_seed(1)
    return Stack(width, graph.num_classes, layer=name, info=info, **({"layers": 2, "hidden": 8} | options))


def sparse() -> Graph:
    return plain(x=SparseFeatures.from_dense(X * (X > 0.5)))


CASES: dict[str, tuple[Graph, Any]] = {
    "gcn": (plain(edge_weight=torch.rand(500, generator=MADE)), lambda g: stack(g, "gcn")),
    "sage": (plain(), lambda g: stack(g, "sage", layers=3, jumping="cat", norm="batch")),
    "gat": (plain(), lambda g: stack(g, "gat", heads=2, residual=True)),
    "sparse features": (sparse(), lambda g: stack(g, "gcn")),
    "two hops a layer": (plain(), lambda g: stack(g, "sgc", layers=1, hops=2)),
    "relations": (
        Graph.from_edges(EDGES, num_nodes=61, x=X, y=Y, edge_type=torch.arange(500) % 3),
        lambda g: stack(g, "rgcn"),
    ),
    "edge features": (plain(edge_attr=torch.rand(500, 2, generator=MADE)), lambda g: stack(g, "gine")),
    "types": (typed(), lambda g: stack(g, "rgcn")),
    "types with attention": (typed(), lambda g: stack(g, "hgt", heads=2)),
    "no features": (plain(x=None), lambda g: stack(g, "sage")),
    "double": (plain().to(dtype=torch.float64), lambda g: stack(g, "gat").double()),
}


def forward(model: nn.Module, graph: Graph) -> Tensor:
    model.eval()
    whole = adapt(graph, model)
    with torch.no_grad():
        out: Tensor = model(whole.block(), whole.x)
    return out


def outputs(folder: Path, name: str = "predictions", column: str = "output") -> Tensor:
    return torch.tensor(pq.read_table(folder / f"{name}.parquet").column(column).to_pylist())


def near(a: Tensor, b: Tensor) -> bool:
    far = (a.double() - b.double()).abs().max()
    return a.shape == b.shape and float(far) <= 1e-5 * max(1.0, float(b.abs().max()))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infer_rounds, "PIECE", 8 * 4 * 8 * 100)  # a hundred edges and rows
    monkeypatch.setattr(infer_tables, "CHUNK", 50)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("case", CASES)
def test_engines_give_what_one_forward_does(case: str, tmp_path: Path) -> None:
    graph, make = CASES[case]
    model = make(graph)
    if case == "sage":
        model(adapt(graph, model).block(), graph.x)  # running statistics that are not the initial ones
    expected = forward(model, graph)[graph.target_rows]
    embeddings = {}
    for engine in ("torch", "duckdb"):
        out = tmp_path / engine
        result = infer_model(model_scoring(model, graph), out, setting=Setting(engine))
        assert near(outputs(out), expected), engine
        assert result["nodes"] == len(expected)
        assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
        if EMBEDDINGS in result["files"]:
            embeddings[engine] = outputs(out, "_embeddings/embeddings", "embedding")
    if embeddings:
        assert near(embeddings["duckdb"], embeddings["torch"])


def hubs() -> Tensor:
    """Return 1,500 edges of which two thirds go to two nodes."""
    sources = torch.randint(60, (1000,), generator=torch.Generator().manual_seed(4))
    to = torch.cat([torch.zeros(600), torch.ones(400)]).long()
    return torch.cat([EDGES, torch.stack([sources, to])], dim=1)


def typed_hubs() -> Graph:
    edges = hubs()
    return Graph.from_types(
        {"author": {"num_nodes": 60}, "paper": {"x": X[:60], "y": [0, 1] * 30}},
        {("author", "writes", "paper"): edges, ("paper", "cites", "paper"): edges.flip(1)},
    )


def with_hubs(**data: Any) -> Graph:
    return Graph.from_edges(hubs(), num_nodes=61, **({"x": X, "y": Y} | data))


HUBS: dict[str, tuple[Graph, Any]] = {
    "gcn": (with_hubs(edge_weight=torch.rand(1500, generator=MADE)), lambda g: stack(g, "gcn")),
    "sage": (with_hubs(), lambda g: stack(g, "sage", residual=True, norm="layer")),
    "max": (with_hubs(), lambda g: stack(g, "sage", aggregate="max")),
    "gat": (with_hubs(), lambda g: stack(g, "gat", heads=2)),
    "gatv2": (with_hubs(), lambda g: stack(g, "gatv2", heads=2)),
    "relations": (with_hubs(edge_type=torch.arange(1500) % 3), lambda g: stack(g, "rgcn")),
    "edge features": (
        with_hubs(edge_attr=torch.rand(1500, 2, generator=MADE)),
        lambda g: stack(g, "gine", hidden=6),
    ),
    "any function": (with_hubs(), lambda g: stack(g, "edgeconv")),
    "sparse": (with_hubs(x=SparseFeatures.from_dense(X * (X > 0.5))), lambda g: stack(g, "gcn")),
    "types": (typed_hubs(), lambda g: stack(g, "rgcn")),
    "types with attention": (typed_hubs(), lambda g: stack(g, "hgt", heads=2)),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("case", HUBS)
def test_edges_of_a_hub_are_met_in_shards(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most: list[int] = []

    def watched(function: Any) -> Any:
        def run(*given: Any, **told: Any) -> Any:
            most.append(sum(part == 1 for part in given[-1].column("part").to_pylist()))
            return function(*given, **told)

        return run

    monkeypatch.setattr(infer_rounds, "run_slice", watched(infer_rounds.run_slice))
    monkeypatch.setattr(infer_rounds, "run_shard", watched(infer_rounds.run_shard))
    graph, make = HUBS[case]
    model = make(graph)
    infer_model(model_scoring(model, graph), tmp_path / "out", setting=Setting("duckdb"))
    assert near(outputs(tmp_path / "out"), forward(model, graph)[graph.target_rows])
    assert max(most) <= 134  # a hundred of width 8, a third more of width 6


class Twice(Layer):
    """Reduces what it made of an earlier reduction."""

    def __init__(self) -> None:
        super().__init__(6, 6)

    def forward(self, block: Any, x: Tensor) -> Tensor:
        mean = block.propagate(lambda u: u, src=[x], reduce="mean")
        out: Tensor = block.propagate(lambda u, v: u - v, src=[x], dst=[mean], reduce="max")
        return out


@pytest.mark.usefixtures("small")
def test_why_a_hub_cannot_be_met_in_shards_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = with_hubs()
    diverged = stack(graph, "gat")
    with torch.no_grad():
        next(diverged.parameters()).fill_(torch.nan)
    monkeypatch.setattr(stages, "_merges", lambda _: True)
    for model, message in (
        (diverged, "values that are not numbers: its weights or the features"),
        (nn.ModuleList([Twice()]), "reduces over edges what it made of an earlier reduction"),
    ):
        with pytest.raises(InputError, match=message):
            infer_model(model_scoring(model, graph), tmp_path / "out", setting=Setting("duckdb"))


def on_spark(cases: dict[str, tuple[Graph, Any]], folder: Path) -> None:
    for case, (graph, make) in cases.items():
        model = make(graph)
        out = folder / case
        infer_model(model_scoring(model, graph), out, setting=Setting("spark"))
        assert near(outputs(out), forward(model, graph)[graph.target_rows]), case


@GROUP
@pytest.mark.usefixtures("spark")
def test_spark_gives_what_one_forward_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infer_rounds, "PIECE", 8 * 4 * 8 * 300)  # two or three pieces
    on_spark({"types": CASES["types"]}, tmp_path)


@GROUP
@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_spark_gives_what_one_forward_does_for_all_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infer_rounds, "PIECE", 8 * 4 * 8 * 300)
    on_spark({name: case for name, case in CASES.items() if name != "types"}, tmp_path)


@GROUP
@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_edges_of_a_hub_are_met_in_shards_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infer_rounds, "PIECE", 8 * 4 * 8 * 300)
    on_spark({name: HUBS[name] for name in ("gat", "types")}, tmp_path)


DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
REAL = [
    *(("cora", name) for name in ("gcn", "sage", "gat")),
    *(("hetero_dblp", name) for name in ("rgcn", "hgt")),
    *(("wordnet30", name) for name in ("gcn", "sage", "gat", "rgcn")),
    ("cora", "gine"),  # with edge features made up
]


@GROUP
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("data", "name"), REAL)
def test_engines_agree_on_real_graphs(data: str, name: str, tmp_path: Path) -> None:
    if not (DATA / f"{data}.npz").exists():
        pytest.skip(f"{DATA / data}.npz is not there")
    graph = weft.datasets.open_dataset(DATA / f"{data}.npz")
    if name == "gine":
        attr = torch.rand(graph.num_edges, 3, generator=MADE)
        graph = Graph.from_edges(graph.edge_index, x=graph.x, y=graph.y, edge_attr=attr)
    model = stack(graph, name, hidden=16)
    expected = forward(model, graph)[graph.target_rows]
    for engine in ("torch", "duckdb", "spark"):
        infer_model(model_scoring(model, graph), tmp_path / engine, setting=Setting(engine))
        assert near(outputs(tmp_path / engine), expected), engine


def test_embeddings_are_what_the_last_layer_reads(tmp_path: Path) -> None:
    graph = plain()
    model = stack(graph, "sage")
    infer_model(model_scoring(model, graph), tmp_path / "out")
    model.eval()
    with torch.no_grad():
        last = model.run_layer(0, [graph.block()], graph.x)
    assert near(outputs(tmp_path / "out", "_embeddings/embeddings", "embedding"), last)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("engine", ["torch", "duckdb"])
def test_only_what_the_asked_nodes_need_is_computed(engine: str, tmp_path: Path) -> None:
    names = [f"n{v}" for v in range(51)]
    line = Graph.from_edges([list(range(50)), list(range(1, 51))], x=X[:51], y=[0, 1, 2] * 17, node_ids=names)
    model = stack(line, "sage")
    pq.write_table(pa.table({"id": ["n40", "n7"]}), tmp_path / "ids.parquet")
    result = infer_model(
        model_scoring(model, line), tmp_path / "out", nodes=tmp_path / "ids.parquet", setting=Setting(engine)
    )
    table = pq.read_table(tmp_path / "out" / "predictions.parquet")
    assert table.column("id").to_pylist() == ["n40", "n7"]
    assert near(outputs(tmp_path / "out"), forward(model, line)[[40, 7]])
    assert result["evaluations"] == 6  # two nodes, and one more each in the first layer
    assert json.loads((tmp_path / "out" / "_infer.json").read_text())["engine"] == engine
    # Readers of a folder find one table, and skip the note and what has other columns.
    assert pads.dataset(tmp_path / "out").to_table().equals(table)
    assert len(pads.dataset(tmp_path / "out" / "_embeddings").to_table()) == 2
    assert result["files"] == ["_embeddings/embeddings.parquet", "predictions.parquet"]
    (tmp_path / "out" / "_infer.json").rename(tmp_path / "out" / "infer.json")  # as weft wrote it before
    infer_model(model_scoring(model, line), tmp_path / "out", overwrite=True, setting=Setting(engine))
    assert not (tmp_path / "out" / "infer.json").exists()


@pytest.mark.parametrize("engine", ["torch", "duckdb"])
def test_of_no_node_empty_files_are_written(engine: str, tmp_path: Path) -> None:
    line = Graph.from_edges([[0, 1], [1, 2]], x=X[:3], y=[0, 1, 2], node_ids=["a", "b", "c"])
    (tmp_path / "ids.csv").write_text("id\n")
    scoring = model_scoring(stack(line, "sage"), line)
    infer_model(scoring, tmp_path / "out", nodes=tmp_path / "ids.csv", setting=Setting(engine))
    table = pq.read_table(tmp_path / "out" / "predictions.parquet")
    assert table.num_rows == 0
    assert "id" in table.column_names


def test_ids_of_files_are_found_as_they_are_written(tmp_path: Path) -> None:
    named = Graph.from_edges([[0, 1], [1, 2]], node_ids=["007", "7", "a,b"])
    (tmp_path / "ids.csv").write_text('id\n7\n007\n"a,b"\n')
    assert asked_nodes(named, tmp_path / "ids.csv").tolist() == [1, 0, 2]
    numbers = Graph.from_edges([[0, 1], [1, 2]], node_ids=[5, 2**62, -3])
    (tmp_path / "n.csv").write_text(f"id\n{2**62}\n-3\n")
    assert asked_nodes(numbers, tmp_path / "n.csv").tolist() == [1, 2]
    pq.write_table(pa.table({"type": ["paper", "author"], "id": ["p3", "2"]}), tmp_path / "typed.parquet")
    assert asked_nodes(typed(), tmp_path / "typed.parquet").tolist() == [2, 12]
    (tmp_path / "bad.csv").write_text("id\n8\n")
    (tmp_path / "twice.csv").write_text("id\n7\n7\n")
    (tmp_path / "word.csv").write_text("id\nx\n")
    (tmp_path / "large.csv").write_text("id\n5\n99999999999999999999\n")
    (tmp_path / "two.csv").write_text("a,b\n1,2\n")
    (tmp_path / "bare.csv").write_text("7\n007\n")
    for graph, name, message in (
        (named, "bad.csv", r"bad.csv: no node has the id '8' \(1 unknown\)"),
        (named, "twice.csv", "an id is there twice"),
        (numbers, "word.csv", "no node has the id 'x': ids of 'node' are numbers"),
        (numbers, "large.csv", "no node has the id '99999999999999999999': it is too large"),
        (named, "two.csv", "no column 'id'; it has: a, b"),
        (named, "bare.csv", "the first line is an id itself"),
        (named, "absent.parquet", "absent.parquet: not a Parquet or CSV file"),
    ):
        with pytest.raises(InputError, match=message):
            asked_nodes(graph, tmp_path / name)


class Stopped(BaseException):
    """The end of a process, as far as anything in it can tell."""


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("engine", ["torch", "duckdb"])
def test_a_killed_inference_goes_on_after_its_last_round(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infer_rounds, "LONG", 0.0)
    graph = plain()
    model = stack(graph, "sage", layers=3)
    rounds: list[int] = []

    def tell(round: int, rounds_: int, rows: int, num_rows: int) -> None:
        if rows == num_rows:
            rounds.append(round)
        if rounds[-1:] == [1] and len(rounds) == 2:
            raise Stopped

    with pytest.raises(Stopped):
        infer_model(model_scoring(model, graph), tmp_path / "out", setting=Setting(engine), tell=tell)
    assert [path.name for path in tmp_path.iterdir()] == [".out.work"]
    infer_model(model_scoring(model, graph), tmp_path / "out", setting=Setting(engine), tell=tell)
    first = 1 if engine == "torch" else 2  # torch tells before the rows of the round are kept
    assert rounds == [0, 1, *range(first, 4)]
    assert near(outputs(tmp_path / "out"), forward(model, graph))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_other_weights_or_another_graph_do_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infer_rounds, "LONG", 0.0)
    graph, other = plain(), Graph.from_edges(EDGES[:, :400], num_nodes=61, x=X, y=Y)
    model = stack(graph, "sage")
    changed = stack(graph, "sage")
    with torch.no_grad():
        next(changed.parameters()).add_(1.0)

    def tell(round: int, rounds: int, rows: int, num_rows: int) -> None:
        if round == 1:
            raise Stopped

    for name, then, on in (("weights", changed, graph), ("graph", model, other)):
        with pytest.raises(Stopped):
            infer_model(model_scoring(model, graph), tmp_path / name, tell=tell)
        infer_model(model_scoring(then, on), tmp_path / name)
        assert near(outputs(tmp_path / name), forward(then, on)), name


@pytest.mark.parametrize("broken", ["kind_of", "stream", "finish_rows"])  # before, in and after the rounds
def test_an_engine_is_closed_whatever_fails(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []

    def watched(*given: Any, **options: Any) -> Engine:
        engine = open_engine(*given, **options)
        close = engine.close
        monkeypatch.setattr(engine, "close", lambda: closed.append(True) or close())
        return engine

    def fail(*_: Any) -> None:
        raise InputError("it broke")

    monkeypatch.setattr(infer, "open_engine", watched)
    monkeypatch.setattr(infer_rounds, broken, fail)
    graph = plain()
    scoring = model_scoring(stack(graph, "sage"), graph)
    with pytest.raises(InputError, match="it broke"):
        infer_model(scoring, tmp_path / "out", setting=Setting("duckdb"))
    assert closed == [True]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("jumping", [None, "sum"])
def test_a_round_that_was_not_kept_is_run_again(
    jumping: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeps = iter([True, True, True, False, True])  # the last but one is short
    monkeypatch.setattr(infer, "worth_keeping", lambda _: next(keeps, True))
    graph = plain()
    model = stack(graph, "sage", layers=5, jumping=jumping)

    def tell(round: int, rounds: int, rows: int, num_rows: int) -> None:
        if round == 5 and next(stops, False):  # outputs are written
            raise Stopped

    stops = iter([True])
    with pytest.raises(Stopped):
        infer_model(model_scoring(model, graph), tmp_path / "out", tell=tell)
    infer_model(model_scoring(model, graph), tmp_path / "out", tell=tell)
    assert near(outputs(tmp_path / "out"), forward(model, graph))
    infer_model(model_scoring(model, graph), tmp_path / "whole")
    assert near(
        *(outputs(tmp_path / name, "_embeddings/embeddings", "embedding") for name in ("out", "whole"))
    )


def test_two_at_once_into_one_folder_are_refused(tmp_path: Path) -> None:
    graph = plain()
    scoring = model_scoring(stack(graph, "sage"), graph)

    def tell(round: int, rounds: int, rows: int, num_rows: int) -> None:
        with pytest.raises(InputError, match="another weft infer is writing to out"):
            infer_model(scoring, tmp_path / "out")

    infer_model(scoring, tmp_path / "out", tell=tell)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_models_of_pyg_convolutions_are_cut_into_slices(tmp_path: Path) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    graph = plain()
    parts = nn.Sequential(weft.nn.PyG(pyg.GCNConv(6, 8)), nn.ReLU(), weft.nn.PyG(pyg.GATConv(8, 3)))
    expected = adapt(graph, parts).x
    whole = adapt(graph, parts).block()
    with torch.no_grad():
        for part in parts:
            expected = part(whole, expected) if isinstance(part, weft.nn.PyG) else part(expected)
    for engine in ("torch", "duckdb"):
        infer_model(model_scoring(parts, graph), tmp_path / engine, setting=Setting(engine))
        assert near(outputs(tmp_path / engine), expected), engine


def test_outputs_of_several_labels_and_names_of_classes(tmp_path: Path) -> None:
    graph = plain(y=torch.eye(3)[torch.tensor(Y)])
    model = stack(graph, "sage")
    infer_model(model_scoring(model, graph, classes=["a", "b", "c"]), tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "predictions.parquet")
    scores = forward(model, graph)
    assert table.column_names == ["id", "prediction", "output"]
    for row, named in enumerate(table.column("prediction").to_pylist()):
        assert named == [word for word, score in zip("abc", scores[row].tolist()) if score > 0]


def write_tables(folder: Path, *, people: int = 40) -> None:
    draw = np.random.default_rng(5)
    kinds = draw.integers(0, 2, people)
    lines = ["id,age,height,group"]
    for person, kind in enumerate(kinds):
        age, height = 20 + 30 * kind + draw.integers(9), draw.random()
        lines.append(f"p{person:03d},{age},{height:.2f},{('red', 'blue')[kind]}")
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    ends = [(draw.integers(people), draw.integers(people)) for _ in range(160)]
    (folder / "knows.csv").write_text("src,dst\n" + "".join(f"p{a:03d},p{b:03d}\n" for a, b in ends))


def test_from_tables_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    schema = (
        '[nodes.node]\nfiles = ["people.csv"]\nid = "id"\nfeatures = ["age", "height"]\nlabel = "group"\n'
    )
    schema += (
        '[edges.edge]\nsource = "node"\ntarget = "node"\nfiles = ["knows.csv"]\nsrc = "src"\ndst = "dst"\n'
    )
    Path("schema.toml").write_text(schema)
    assert main(["ingest", "--schema", "schema.toml", "--out", "graph"]) == 0
    settings = ["data.path=graph", "data.normalise_features=true", "model.name=gcn", "train.epochs=3"]
    assert main(["train", *(f"--set={each}" for each in settings), "--out", "run"]) == 0
    capsys.readouterr()
    assert main(["infer", "run", "--graph", "graph", "--out", "predictions", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["nodes"] == 40
    assert "layer 2 of 2: 40 nodes" in told.err
    table = pq.read_table("predictions/predictions.parquet")
    assert table.column("id").to_pylist() == [f"p{v:03d}" for v in range(40)]
    assert set(table.column("prediction").to_pylist()) <= {"red", "blue"}
    graph = weft.datasets.open_dataset("graph", normalise_features=True)
    model = stack(graph, "gcn", hidden=64)
    weft.train.load_weights("run/model.safetensors", model)
    assert near(outputs(Path("predictions")), forward(model, graph))
    assert main(["infer", "run", "--out", "again", "--engine", "duckdb"]) == 0  # the run's own data
    assert near(outputs(Path("again")), outputs(Path("predictions")))


def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plain(train_mask=torch.arange(61) < 40).save("g")
    Graph.from_edges(EDGES, num_nodes=61, x=X[:, :4]).save("narrow")
    plain(edge_attr=torch.rand(500, 2)).save("attr")
    weft.train(weft.load("g"), "sage", epochs=1, out="run")
    Path("taken").mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    for words, message in (
        (["absent", "--graph", "g", "--out", "o"], "absent holds no run"),
        (["run", "--out", "o"], "names no data; give the graph: --graph GRAPH"),
        (["run", "--graph", "nowhere", "--out", "o"], "nowhere: no such file or folder"),
        (["run", "--graph", "narrow", "--out", "o"], "trained on features node 6, this graph has node 4"),
        (["run", "--graph", "attr", "--out", "o"], "trained on edge data none, this graph has attr [2]"),
        (["run", "--graph", "g", "--out", "taken"], "taken already exists"),
        (["run", "--graph", "g", "--out", "taken", "--overwrite"], "not a folder written by weft"),
        (
            ["run", "--graph", "g", "--out", "o", "--nodes", "none.parquet"],
            "not a Parquet or CSV file of ids",
        ),
        (["run", "--graph", "g", "--out", "o", "--memory", "much"], "memory: expected a size"),
        (["run", "--graph", "g", "--out", "o", "--master", "local[2]"], "are for --engine spark"),
        (["run", "--graph", "g", "--out", "o", "--conf", "a"], "expected spark.KEY=VALUE"),
        (["run", "--graph", "g", "--out", "o", "--engine", "spark", "--conf", "x=y"], "got 'x=y'"),
        (["run", "--graph", "g", "--out", "o", "--fanout", "5"], "fanout: the model takes 2 hops, [5] are 1"),
        (["run", "--graph", "g", "--out", "o", "--fanout", "a,b"], "--fanout: expected whole numbers"),
        (
            ["run", "--graph", "g", "--out", "o", "--fanout", "2,2", "--engine", "duckdb"],
            "for --engine torch",
        ),
        (["run", "--graph", "g", "--out", "o", "--seed", "3"], "--seed is that of sampled neighbours"),
        (["run", "--graph", "g", "--out", "o", "--fanout", "2,2", "--memory", "1G"], "leave it out with"),
        (["run", "--graph", "g", "--out", "o", "--device", "abacus"], "abacus"),
    ):
        assert main(["infer", *words]) == 2, words
        told = capsys.readouterr().err
        assert message in told, told
        assert told.count("\n") == 1
        assert {path.name for path in tmp_path.iterdir()} == before
    run = json.loads(Path("run/run.json").read_text())
    run["recipe"]["model"] = {"class": "Net"}
    Path("run/run.json").write_text(json.dumps(run))
    assert main(["infer", "run", "--graph", "g", "--out", "o"]) == 2
    assert "trained Net, a model of its own that its recipe cannot rebuild" in capsys.readouterr().err


class Own(nn.Module):
    """A model as people write them: layers, a loop, a skip connection, columns side by side."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.convs = nn.ModuleList([weft.nn.SAGE(width, 8), weft.nn.GAT(8, 4, heads=2)])
        self.norm = nn.BatchNorm1d(8)
        self.drop = weft.nn.Dropout(0.5)
        self.skip = nn.Linear(width, 8)
        self.last = nn.Linear(24, 3)

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        h, kept = x, []
        for conv, block in zip(self.convs, blocks, strict=True):
            h = self.norm(conv(block, h)).relu() + self.skip(x) if conv is self.convs[0] else conv(block, h)
            h = self.drop(block, h)
            kept.append(nn.functional.elu(h))
        return self.last(torch.cat([*kept, self.skip(x)], dim=1))


class OfPyG(nn.Module):
    """An unmodified model of PyG convolutions."""

    def __init__(self) -> None:
        super().__init__()
        pyg = pytest.importorskip("torch_geometric.nn")
        self.conv1, self.conv2 = pyg.GCNConv(6, 8), pyg.SAGEConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = nn.functional.dropout(self.conv1(x, edge_index).relu(), training=self.training)
        return self.conv2(h, edge_index).log_softmax(dim=-1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "engine", ["torch", "duckdb", pytest.param("spark", marks=[pytest.mark.slow, GROUP])]
)
def test_a_model_of_its_own_class_is_cut_into_slices(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as classes of a script are
    graph = with_hubs().remove_self_loops()
    torch.manual_seed(3)
    own, pyg = Own(), OfPyG().eval()
    own.norm.running_mean = torch.randn(8)
    whole = adapt(graph, own)
    own.eval()
    with torch.no_grad():
        expected = {"own": own([whole.block()] * 2, whole.x), "pyg": pyg(graph.x, graph.edge_index)}
    own.train()
    for name, model in (("own", own), ("pyg", pyg)):
        infer_model(model_scoring(model, graph), tmp_path / name, setting=Setting(engine))
        assert near(outputs(tmp_path / name), expected[name]), name
    assert outputs(tmp_path / "own", "_embeddings/embeddings", "embedding").shape == (61, 8)
    assert near(weft.infer(own, graph).tensor(), expected["own"])


def test_what_cannot_be_cut_is_refused_with_the_reason(tmp_path: Path) -> None:
    graph = plain()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = weft.nn.SAGE(6, 3)

        def forward(self, blocks: Any, x: Tensor) -> Tensor:
            return self.body(blocks[0], x)

        def body(self, block: Any, x: Tensor) -> Tensor:
            return x

    class Mixes(Net):
        def body(self, block: Any, x: Tensor) -> Tensor:
            h = self.conv(block, x)
            return h - h.mean(dim=0)

    class Asks(Net):
        def body(self, block: Any, x: Tensor) -> Tensor:
            return self.conv(block, x) if x.sum() > 0 else x

    class Reaches(Net):
        def body(self, block: Any, x: Tensor) -> Tensor:
            return self.conv(block, block.aggregate(x))

    class Bare(nn.Module):
        pass

    for kind, message in (
        (Bare, "Bare has no layer of weft and no PyG convolution"),
        (Mixes, "Mixes cannot be cut into layers: 'mean' between them may mix rows"),
        (Asks, "Asks cannot be cut into layers, its forward cannot be followed .*control flow"),
        (Reaches, "Reaches cannot be cut into layers: 'aggregate' between them"),
    ):
        with pytest.raises(InputError, match=message):
            infer_model(model_scoring(kind(), graph), tmp_path / "out")
    with pytest.raises(InputError, match="conv1 adds the self loops that are missing, and 24 of 61 nodes"):
        infer_model(model_scoring(OfPyG(), with_hubs()), tmp_path / "out")
    with pytest.raises(InputError, match="no engine 'flink'"):
        infer_model(model_scoring(stack(graph, "sage"), graph), tmp_path / "out", setting=Setting("flink"))
    assert list(tmp_path.iterdir()) == []
