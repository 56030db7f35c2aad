"""Rounds of inference, in torch and on engines, give what one forward over the whole graph does."""

from pathlib import Path

import pytest
import torch
from infer_cases import (
    CASES,
    MADE,
    forward,
    near,
    on_spark,
    outputs,
    plain,
    stack,
)
from spark import GROUP
from tables import small_disk

import weft
from weft.errors import InputError, WeftError
from weft.graph import Graph
from weft.pipeline.infer import rounds as infer_rounds
from weft.pipeline.infer.inference import Setting, infer_model, model_scoring
from weft.pipeline.infer.write import EMBEDDINGS
from weft.train.model import adapt


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


def test_two_at_once_into_one_folder_are_refused(tmp_path: Path) -> None:
    graph = plain()
    scoring = model_scoring(stack(graph, "sage"), graph)

    def tell(round: int, rounds: int, rows: int, num_rows: int) -> None:
        with pytest.raises(InputError, match="another weft infer is writing to out"):
            infer_model(scoring, tmp_path / "out")

    infer_model(scoring, tmp_path / "out", tell=tell)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("engine", ["torch", "duckdb"])
def test_a_full_disk_is_one_line_and_leaves_no_predictions(engine: str, tmp_path: Path) -> None:
    ids = torch.arange(20_000)
    graph = Graph.from_edges(torch.stack([ids, ids.roll(1)]), x=torch.rand(20_000, 8), y=ids % 3)
    scoring = model_scoring(stack(graph, "sage"), graph)
    with small_disk(tmp_path / "disk", "size=100k") as disk:
        with pytest.raises(WeftError, match="No space left on device") as raised:
            infer_model(scoring, disk / "out", setting=Setting(engine))
        assert "\n" not in str(raised.value)
        assert not (disk / "out").exists()
