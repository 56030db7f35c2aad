"""Layer by layer over the whole graph equals one forward over it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft.errors import InputError
from weft.events import Events
from weft.graph import Graph
from weft.layers.base import GraphInfo, layers
from weft.layers.stack import Stack
from weft.stores import CachedStore, MmapStore, out_degree
from weft.train.inference import infer as inference
from weft.train.inference.infer import infer, pieces
from weft.train.model import adapt

MADE = torch.Generator().manual_seed(0)
EDGES = torch.randint(60, (2, 500), generator=MADE)
X = torch.randn(61, 6, generator=MADE)  # the last node has no edges


def graph(**data: Any) -> Graph:
    return Graph.from_edges(EDGES, num_nodes=61, x=X, y=[0, 1, 2] * 20 + [0], **data)


def forward(model: nn.Module, whole: Graph) -> Tensor:
    model.eval()
    with torch.no_grad():
        out: Tensor = model(adapt(whole, model).block(), whole.x)
    model.train()
    return out


def near(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and float((a - b).abs().max()) <= 1e-5 * max(1.0, float(b.abs().max()))


# Typed layers and those with edge features have graphs of their own.
PLAIN = [name for name in layers.names() if name not in ("hgt", "rgcn", "gine", "pyg")]


@pytest.mark.parametrize("name", PLAIN)
def test_every_layer_gives_what_the_whole_graph_does(name: str) -> None:
    whole, model = graph(), Stack(6, 3, layer=name, layers=2, hidden=8)
    for memory in (20_000, None):  # some tens of nodes a piece; all at once
        assert near(infer(model, whole, memory=memory).tensor(), forward(model, whole))
    assert model.training


@pytest.mark.parametrize(
    "options",
    [{"jumping": "cat"}, {"jumping": "max"}, {"residual": True}, {"norm": "batch"}, {"norm": "layer"}],
)
def test_what_goes_between_layers_is_kept(options: dict[str, Any]) -> None:
    whole, model = graph(), Stack(6, 3, layer="sage", layers=3, hidden=8, **options)
    model(whole.block(), whole.x)  # running statistics that are not the initial ones
    assert near(infer(model, whole, memory=20_000).tensor(), forward(model, whole))


def test_a_list_of_layers_is_a_model() -> None:
    parts = [
        nn.Linear(6, 5),
        nn.ReLU(),
        layers["sage"](5, 8),
        nn.ReLU(),
        nn.LayerNorm(8),
        layers["gat"](8, 3),
    ]
    whole = graph().add_self_loops()
    expected = whole.x
    for part in parts:
        expected = (
            part(whole.block(), expected) if isinstance(part, weft.layers.base.Layer) else part(expected)
        )
    assert near(infer(parts, whole, memory=20_000).tensor(), expected.detach())


def test_typed_graphs_and_learned_rows() -> None:
    typed = Graph.from_types(
        {"author": {"num_nodes": 9}, "paper": {"x": X[:20], "y": [0, 1] * 10}},
        {
            ("author", "writes", "paper"): torch.stack([EDGES[0] % 9, EDGES[1] % 20]),
            ("paper", "by", "author"): torch.stack([EDGES[1] % 20, EDGES[0] % 9]),
        },
    )
    info = GraphInfo.of(typed)
    for name in ("rgcn", "hgt"):
        model = Stack(info.in_features, 2, layer=name, layers=2, hidden=8, info=info)
        assert near(infer(model, typed).tensor(), forward(model, typed)[9:])
        found = infer(model, typed, memory=20_000)
        assert near(found.tensor(), forward(model, typed)[9:])  # of papers, which have labels
        assert found.ids["paper"].tolist() == list(range(20))
        assert near(found.of([3, 1]), forward(model, typed)[[12, 10]])


def test_features_in_a_file_behind_a_cache_and_output_in_a_file(tmp_path: Path) -> None:
    whole, model = graph(), Stack(6, 3, layer="gcn", layers=3, hidden=8)
    MmapStore.write_rows(tmp_path / "x", X)
    store = CachedStore(MmapStore(tmp_path / "x"), out_degree(whole), capacity=10)
    assert near(infer(model, whole.with_data(x=store)).tensor(), forward(model, whole))
    found = infer(model, whole.with_data(x=store), out=tmp_path / "out", memory=20_000)
    assert near(found.tensor(), forward(model, whole))
    assert near(MmapStore(tmp_path / "out")[:], forward(model, whole))
    assert {path.name for path in tmp_path.iterdir()} == {"x", "out"}  # nothing between layers is left
    assert store.counters.hits > 0
    with pytest.raises(InputError, match="exists"):
        infer(model, whole, out=tmp_path / "out")


def test_only_what_the_asked_nodes_need_is_computed() -> None:
    line = Graph.from_edges([list(range(50)), list(range(1, 51))], x=torch.rand(51, 6))
    model = Stack(6, 3, layer="sage", layers=2, hidden=8)
    done: list[dict[str, Any]] = []
    events = Events(sinks=[done.append])
    found = infer(model, line, nodes=[40, 7], events=events)
    assert near(found.tensor(), forward(model, line)[[40, 7]])
    assert [(entry["layer"], entry["rows"], entry["num_rows"]) for entry in done] == [(0, 4, 4), (1, 2, 2)]
    assert infer(model, line, nodes=[]).tensor().shape == (0, 3)


def test_outputs_are_found_by_the_users_ids(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    names = [f"n{61 - v}" for v in range(61)]
    whole, model = graph(node_ids=names), Stack(6, 3, layer="sage", hidden=8)
    found = infer(model, whole)
    assert near(found.of(["n61", "n2"]), forward(model, whole)[[0, 59]])
    found.to_parquet(tmp_path / "out.parquet", chunk=10)
    table = parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert table["id"] == names
    assert near(torch.tensor(table["output"]), found.tensor())


def test_sampled_inference_takes_any_model_and_all_edges_are_exact() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = layers["sage"](6, 8), layers["sage"](8, 3)

        def forward(self, blocks: Any, x: Tensor) -> Tensor:
            blocks = blocks if isinstance(blocks, list) else [blocks] * 2
            out: Tensor = self.two(blocks[1], self.one(blocks[0], x).relu())
            return out

    whole, model = graph(), Net()
    assert near(infer(model, whole, fanout=[-1, -1], batch_size=7).tensor(), forward(model, whole))
    few = [infer(model, whole, fanout=[2, 2], batch_size=size, seed=3).tensor() for size in (7, 61)]
    assert near(*few)  # a node's sample does not depend on its batch
    assert not near(few[0], forward(model, whole))
    assert near(infer(model, whole).tensor(), forward(model, whole))  # cut into its layers
    with pytest.raises(InputError, match=r"fanout: the model takes 2 hops, \[5\] are 1"):
        infer(weft.nn.Stack(6, 3), whole, fanout=[5])


def test_what_cannot_be_run_by_rows_is_refused_with_the_reason() -> None:
    sage = layers["sage"](6, 3)
    for model, message in (
        ([sage, nn.MultiheadAttention(3, 1)], r"item 1 of the model, MultiheadAttention, cannot"),
        ([nn.Linear(6, 3)], "no layer of weft"),
        ([sage, nn.Softmax(dim=0)], "item 1 of the model, Softmax"),
        ([sage, nn.BatchNorm1d(3, track_running_stats=False)], r"1 \(BatchNorm1d\) keeps no running"),
    ):
        with pytest.raises(InputError, match=message):
            infer(model, graph())
    for options, message in (
        ({"nodes": [99]}, "nodes: expected ids 0 … 60, got 99"),
        ({"nodes": [3, -5, 7]}, "nodes: expected ids 0 … 60, got -5"),
        ({"nodes": [1, 1]}, "twice"),
        ({"memory": 0}, "bytes"),
    ):
        with pytest.raises(InputError, match=message):
            infer([sage], graph(), **options)


def test_values_of_eight_bytes_make_pieces_half_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[int] = []

    def counted(whole: Graph, nodes: Tensor, hops: int, budget: int) -> Any:
        budgets.append(budget)
        return pieces(whole, nodes, hops, budget)

    monkeypatch.setattr(inference, "pieces", counted)
    model = Stack(6, 3, layer="sage", layers=2, hidden=8)
    infer(model, graph(), memory=20_000)
    infer(model.double(), graph().to(dtype=torch.float64), memory=20_000)
    assert budgets[2:] == [budget // 2 for budget in budgets[:2]]


def test_pieces_hold_so_many_edges_or_one_node() -> None:
    whole = graph()
    found = list(pieces(whole, torch.arange(61), 1, 40))
    assert torch.equal(torch.cat(found), torch.arange(61))
    work = [int((whole.indptr[part + 1] - whole.indptr[part] + 1).sum()) for part in found]
    assert len(found) > 10
    assert all(count <= 40 for count in work)
    assert [len(part) for part in pieces(whole, torch.arange(61), 1, 1)] == [1] * 61
