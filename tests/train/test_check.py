"""weft.train called with the wrong things: one line that says what was expected and what came."""

from typing import Any

import pytest
import torch
import torch_geometric
from torch import Tensor, nn

import weft
from weft.errors import InputError
from weft.train import train


class Call(nn.Module):
    """A model whose outputs the test chooses."""

    def __init__(self, outputs: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.outputs = outputs

    def forward(self, blocks: Any, x: Tensor) -> Any:
        return self.outputs(x * self.weight)


class Silent(nn.Module):
    """A model without a forward."""


MODELS: list[tuple[str, Any, str]] = [
    ("number", 3, "model: expected a torch.nn.Module or the name of a layer, as 'gcn', got 3"),
    ("function", lambda blocks, x: x, "or the name of a layer, as 'gcn', got a function"),
    ("class", dict, "model: expected a torch.nn.Module, got the class dict"),
    ("no forward", Silent(), "model: Silent has no forward"),
    (
        "one argument",
        nn.Linear(8, 3),
        r"called as model\(blocks, x\), got Linear, whose forward takes \(input",
    ),
    ("class of one argument", nn.Linear, r"got Linear, whose forward takes \(input"),
    (
        "PyG",
        torch_geometric.nn.GCN(8, 8, 2, 3),
        r"GCN is called with an edge_index.* weft\.accelerate\(model\)",
    ),
    ("too wide", weft.nn.Stack(7, 3), "Stack: x has 8 features a node, the model was made for 7"),
    ("too few outputs", weft.nn.Stack(8, 2), "the model gives 2 outputs a node, the graph has 3 classes"),
    ("rows missing", Call(lambda x: x[:5]), r"expected outputs of shape \(300, columns\), got \(5, 8\)"),
    ("no matrix", Call(lambda x: x.sum()), r"expected outputs of shape \(300, columns\), got \(\)"),
    ("no tensor", Call(lambda x: (x, x)), "expected a tensor from the model, got tuple"),
]


@pytest.mark.parametrize(("model", "message"), [pytest.param(*case[1:], id=case[0]) for case in MODELS])
def test_a_model_that_cannot_be_trained_is_refused(graph: weft.Graph, model: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        train(graph, model, epochs=1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("cora", r"expected a weft.Graph, got 'cora'; .*open_dataset\('cora'\)"),
        (None, "expected a weft.Graph, got None"),
        (torch_geometric.data.Data(), r"got a Data; .*Graph\.from_pyg"),
    ],
)
def test_what_is_no_graph_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(given, "gcn")


def test_an_out_that_is_no_path_is_refused(graph: weft.Graph) -> None:
    with pytest.raises(InputError, match="out: expected the path of a folder, got 3"):
        train(graph, "gcn", out=3)  # type: ignore[arg-type]


def test_a_strategy_that_is_no_name_is_refused(graph: weft.Graph) -> None:
    with pytest.raises(InputError, match="or a table with one, got 3"):
        train(graph, "gcn", strategy=3)  # type: ignore[arg-type]


def test_a_model_for_features_on_a_graph_without_any_is_refused() -> None:
    mask = torch.tensor([True, False])
    bare = weft.Graph.from_edges([[0], [1]], num_nodes=2, y=[0, 1], train_mask=mask, val_mask=~mask)
    with pytest.raises(InputError, match=r"the graph has no features x; .*info=GraphInfo\.of\(graph\)"):
        train(bare, weft.nn.Stack(4, 2), epochs=1)


def test_a_graph_without_labels_says_so_before_a_model_is_built() -> None:
    with pytest.raises(InputError, match="the graph has no labels y"):
        train(weft.Graph.from_edges([[0], [1]], x=torch.eye(2)), "gcn")


def test_an_unknown_keyword_is_looked_for_among_all_keywords(graph: weft.Graph) -> None:
    with pytest.raises(InputError, match="unknown keyword 'epoch'; did you mean 'epochs'"):
        train(graph, "gcn", epoch=3)
    with pytest.raises(InputError, match="unknown keyword 'hiden'; did you mean 'hidden'"):
        train(graph, "gcn", hiden=3)
    with pytest.raises(
        InputError, match="did you mean 'epochs'? a model that is already built".replace("?", r"\?")
    ):
        train(graph, weft.nn.Stack(8, 3), epoch=3)
