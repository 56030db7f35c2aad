"""Edges of a hub are met in shards, with the results of one forward."""

from pathlib import Path
from typing import Any

import pytest
import torch
from infer_cases import (
    HUBS,
    forward,
    near,
    on_spark,
    outputs,
    stack,
    with_hubs,
)
from spark import GROUP
from torch import Tensor, nn

from weft.errors import InputError
from weft.layers.base import Layer
from weft.pipeline.infer import rounds as infer_rounds
from weft.pipeline.infer.inference import Setting, infer_model, model_scoring
from weft.train.inference import stages


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


@GROUP
@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_edges_of_a_hub_are_met_in_shards_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infer_rounds, "PIECE", 8 * 4 * 8 * 300)
    on_spark({name: HUBS[name] for name in ("gat", "types")}, tmp_path)
