"""Models are cut into a slice a layer; what cannot be cut is refused with the reason."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from infer_cases import (
    near,
    outputs,
    plain,
    small_pieces,
    stack,
    with_hubs,
)
from spark import GROUP
from torch import Tensor, nn

import weft
from weft.errors import InputError
from weft.pipeline.infer.inference import Setting, infer_model, model_scoring
from weft.train.model import adapt


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


@pytest.mark.parametrize(
    "engine", ["torch", "duckdb", pytest.param("spark", marks=[pytest.mark.slow, GROUP])]
)
def test_a_model_of_its_own_class_is_cut_into_slices(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
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
