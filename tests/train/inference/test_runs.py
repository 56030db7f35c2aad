"""Inference on a device, over all edges or from samples, gives what the host gives; on the CPU, the same."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from weft.cli.main import main
from weft.graph import Graph
from weft.layers.base import GraphInfo
from weft.layers.stack import Stack
from weft.train.inference.infer import infer
from weft.train.model import adapt

pytestmark = pytest.mark.gpu

DEVICE = os.environ.get("WEFT_TEST_DEVICE", "cpu")
MADE = torch.Generator().manual_seed(0)
EDGES = torch.randint(60, (2, 500), generator=MADE)
X = torch.randn(61, 6, generator=MADE)
WEIGHT = torch.rand(500, generator=MADE)


def plain(**data: Any) -> Graph:
    masks = {"train_mask": torch.arange(61) % 2 == 0, "val_mask": torch.arange(61) % 2 == 1}
    return Graph.from_edges(EDGES, num_nodes=61, x=X, y=[0, 1, 2] * 20 + [0], **masks, **data)


def typed() -> Graph:
    return Graph.from_types(
        {"author": {"num_nodes": 9}, "paper": {"x": X[:20], "y": [0, 1] * 10}},
        {
            ("author", "writes", "paper"): torch.stack([EDGES[0] % 9, EDGES[1] % 20]),
            ("paper", "by", "author"): torch.stack([EDGES[1] % 20, EDGES[0] % 9]),
        },
    )


def stack(graph: Graph, name: str, **options: Any) -> Stack:
    info = GraphInfo.of(graph)
    width = info.in_features if len(info.node_types) > 1 else info.in_features["node"]
    torch.manual_seed(0)
    return Stack(width, info.num_classes, layer=name, layers=2, hidden=8, info=info, **options)


def forward(model: Stack, graph: Graph) -> Tensor:
    model.eval()
    whole = adapt(graph, model)
    with torch.no_grad():
        out: Tensor = model(whole.block(), whole.x)
    return out[graph.target_rows]


CASES: dict[str, tuple[Graph, str, dict[str, Any]]] = {
    "gcn": (plain(edge_weight=WEIGHT), "gcn", {}),
    "sage": (plain(), "sage", {"jumping": "cat"}),
    "gat": (plain(), "gat", {"heads": 2}),
    "types": (typed(), "rgcn", {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_device_gives_what_the_host_gives(case: str) -> None:
    graph, name, options = CASES[case]
    model = stack(graph, name, **options)
    expected = forward(model, graph)
    for how in ({"memory": 20_000}, {}, {"fanout": [-1, -1], "batch_size": 7}):
        found = infer(model, graph, device=DEVICE, **how).tensor()
        assert found.device.type == "cpu"
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert {value.device.type for value in model.parameters()} == {"cpu"}  # it is back where it was
    few = [infer(model, graph, fanout=[2, 2], seed=3, device=where).tensor() for where in (DEVICE, "cpu")]
    torch.testing.assert_close(*few, rtol=1e-4, atol=1e-5)  # the same draws
    assert not torch.allclose(few[0], expected, atol=1e-3)
    there = model.to(DEVICE)
    torch.testing.assert_close(infer(there, graph).tensor(), expected, rtol=1e-4, atol=1e-5)  # where it lies


def test_the_command_samples_and_writes_by_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.chdir(tmp_path)
    plain(node_ids=[f"n{v}" for v in range(61)]).save("g")
    assert main(["train", "--set", "data.path=g", "--set", "train.epochs=2", "--out", "run"]) == 0
    Path("ids.csv").write_text("id\nn7\nn60\nn3\n")
    capsys.readouterr()

    def read(out: str, *words: str) -> dict[str, Any]:
        assert main(["infer", "run", "--out", out, "--device", DEVICE, "--json", *words]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["nodes"] == len(parquet.read_table(f"{out}/_embeddings/embeddings.parquet"))
        assert torch.device(told["device"]).type == DEVICE
        held = {
            Path(name).name: parquet.read_table(f"{out}/{name}.parquet").to_pydict()
            for name in ("predictions", "_embeddings/embeddings")
        }
        return held | {"told": told}

    exact, all_edges = read("exact"), read("all", "--fanout", "-1,-1")
    one, two, other = (
        read(name, "--fanout", "2,2", "--seed", seed) for name, seed in (("a", "1"), ("b", "1"), ("c", "2"))
    )
    some = read("some", "--fanout", "2,2", "--seed", "1", "--nodes", "ids.csv")
    for table, column in (("predictions", "output"), ("embeddings", "embedding")):
        assert exact[table]["id"] == all_edges[table]["id"] == one[table]["id"]
        torch.testing.assert_close(
            torch.tensor(all_edges[table][column]), torch.tensor(exact[table][column]), rtol=1e-4, atol=1e-5
        )
        assert one[table] == two[table]
        assert one[table] != other[table]
        assert some[table]["id"] == ["n7", "n60", "n3"]
        by_id = dict(zip(one[table]["id"], one[table][column], strict=True))
        for name, row in zip(some[table]["id"], some[table][column], strict=True):
            assert row == pytest.approx(by_id[name], rel=1e-4, abs=1e-5)
    assert one["told"]["fanout"] == [2, 2]
    assert one["told"]["evaluations"] > exact["told"]["evaluations"] // 4
