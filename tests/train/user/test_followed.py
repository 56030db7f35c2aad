"""Models of PyG's kind, as they are, train with the numbers of their own loop, whoever holds the graph."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import weft
from weft.errors import InputError
from weft.train.launch import train

pytest.importorskip("torch_geometric")
from own_pyg import Mixing, Net, Normed

EPOCHS = 3
LAYOUTS: list[dict[str, Any]] = [
    {},
    {"strategy": {"name": "halo", "partitioner": "hash"}, "parts": 3},
    {"strategy": {"name": "sequential", "partitioner": "hash"}, "parts": 2},
    {"strategy": {"name": "sampled", "fanout": [-1, -1]}},
    {"strategy": {"name": "clustered", "clusters": 4, "together": "all", "partitioner": "range"}},
]


def by_hand(graph: weft.Graph, model: nn.Module) -> float:
    """Train as a PyG user does; return the last loss."""
    model.double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rows, x = graph.train_mask, graph.x.double()
    for _ in range(EPOCHS):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, graph.edge_index)[rows], graph.y[rows])
        loss.backward()
        optimizer.step()
    return loss.item()


@pytest.mark.parametrize("kind", [Net, Normed])
def test_an_unmodified_model_trains_as_in_its_own_loop(graph: weft.Graph, kind: type[Net]) -> None:
    torch.manual_seed(0)
    first = kind(8, 3)
    start = {name: value.clone() for name, value in first.state_dict().items()}
    expected = by_hand(graph, first)
    for layout in LAYOUTS:
        if kind is Normed and layout.get("strategy", {}).get("name") == "sampled":
            continue  # a batch has fewer rows to normalise over
        model = kind(8, 3)
        model.load_state_dict(start)
        given = {"epochs": EPOCHS, "precision": "float64", "restore_best": False}
        summary = train(graph, model, **given, **layout)  # type: ignore[arg-type]
        assert summary.loss == pytest.approx(expected, rel=1e-9), layout
        assert summary.model is model
        for name, value in first.state_dict().items():
            torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-9, atol=1e-8)


def test_dropout_is_on_in_training_and_off_in_evaluation(graph: weft.Graph) -> None:
    torch.manual_seed(0)
    model = Net(8, 3, dropout=0.9)
    still = Net(8, 3)
    still.load_state_dict(model.state_dict())
    summary = train(graph, model, epochs=1, restore_best=False)
    assert summary.loss != pytest.approx(train(graph, still, epochs=1, restore_best=False).loss, rel=1e-4)
    model.eval()
    with torch.no_grad():
        out = model(graph.x, graph.edge_index)[graph.test_mask]
    expected = F.cross_entropy(out, graph.y[graph.test_mask]).item()
    assert summary.metrics["test"]["loss"] == pytest.approx(expected, rel=1e-5)


def test_its_run_names_the_class_and_infers_with_it(graph: weft.Graph, tmp_path: Path) -> None:
    from weft.pipeline.infer.scoring import open_run
    from weft.train.inference.infer import infer
    from weft.train.user.followed import own_of

    graph.save(tmp_path / "graph")
    summary = train(graph, "own_pyg:Net", epochs=2, out=tmp_path / "run", options={"hidden": 5})
    held = open_run(tmp_path / "run", tmp_path / "graph")
    assert isinstance(own_of(held.model), Net)
    with torch.no_grad():
        expected = summary.model.eval()(graph.x, graph.edge_index)
    torch.testing.assert_close(infer(held.model, held.graph).tensor(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_workers_follow_it_too(graph: weft.Graph) -> None:
    torch.manual_seed(0)
    model, twin = Net(8, 3), Net(8, 3)
    twin.load_state_dict(model.state_dict())
    expected = by_hand(graph, twin)
    strategy = {"name": "halo", "partitioner": "hash"}
    summary = train(
        graph, model, workers=2, strategy=strategy, epochs=EPOCHS, precision="float64", restore_best=False
    )
    assert summary.loss == pytest.approx(expected, rel=1e-9)
    assert summary.model is model
    torch.testing.assert_close(model.skip.weight, twin.skip.weight, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("loops", "model", "message"),
    [
        (False, Mixing(8, 3), "'mean' between them may mix rows; expected linear maps.* call it as model"),
        (True, Net(8, 3), "first adds the self loops that are missing, and 1 of 300 nodes have one"),
    ],
)
def test_what_cannot_be_followed_is_one_line(
    graph: weft.Graph, loops: bool, model: nn.Module, message: str
) -> None:
    pairs = torch.cat([graph.edge_index, torch.tensor([[0], [0]])], dim=1) if loops else graph.edge_index
    data = {name: getattr(graph, name) for name in ("x", "y", "train_mask", "val_mask", "test_mask")}
    other = weft.Graph.from_edges(pairs, **data)
    with pytest.raises(InputError, match=message) as caught:
        train(other, model, epochs=1)
    assert "\n" not in str(caught.value)
