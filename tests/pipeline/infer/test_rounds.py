"""Rounds that were kept are not run again, and an engine is closed whatever fails."""

from pathlib import Path
from typing import Any

import pytest
import torch
from infer_cases import (
    EDGES,
    Stopped,
    X,
    Y,
    forward,
    near,
    outputs,
    plain,
    stack,
)

from weft.errors import InputError
from weft.graph import Graph
from weft.pipeline.engines.base import Engine, open_engine
from weft.pipeline.infer import inference as infer
from weft.pipeline.infer import rounds as infer_rounds
from weft.pipeline.infer.inference import Setting, infer_model, model_scoring


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
