"""`weft.explain`: where operators of a message run, and why a message is not compiled."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft.train.model import build_model


class Gated(nn.Module):
    def __init__(self, width: int, *, drop: float = 0.0) -> None:
        super().__init__()
        self.gate, self.drop = nn.Linear(2 * width, 3), drop

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        def message(there: Tensor, here: Tensor) -> Tensor:
            both = nn.functional.dropout(torch.cat([there, here], 1), self.drop, training=self.drop > 0)
            return self.gate(both).sigmoid()  # type: ignore[no-any-return]

        return blocks[0].propagate(message, src=(x,), dst=(x,))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def graph() -> weft.Graph:
    return weft.datasets.open_dataset(name="community", nodes=300)


def test_a_map_of_both_ends_runs_on_nodes(graph: weft.Graph) -> None:
    text = str(weft.explain(Gated(graph.x.shape[1]), graph))
    written, compiled = text.split("compiled: ")
    assert [line.split()[2] for line in written.splitlines() if " addmm " in line] == ["edges"]
    assert [line.split()[2] for line in compiled.splitlines() if " mm " in line] == [
        "sources",
        "destinations",
    ]
    assert "a program of 2 steps" in text
    assert "stay for it" in text, "what is kept for backward"
    assert f"{graph.num_edges:,} edges" in text


def test_what_is_not_compiled_is_said_with_the_reason(graph: weft.Graph) -> None:
    assert "not compiled: it draws random numbers" in str(
        weft.explain(Gated(graph.x.shape[1], drop=0.5), graph)
    )


class Centred(nn.Module):
    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        return blocks[0].propagate(lambda u: u - u.mean(0), src=(x,))  # type: ignore[no-any-return]


def test_a_message_that_several_workers_refuse_is_told_of_as_such(graph: weft.Graph) -> None:
    one, two = (str(weft.explain(Centred(), graph, workers=workers)) for workers in (1, 2))
    assert "not compiled: mean: it is taken over edges" in one
    assert "refused on several workers" in two
    assert "crosses" not in two


def test_a_layer_of_weft_is_explained_and_one_without_messages_too(graph: weft.Graph) -> None:
    known = weft.explain(build_model(graph, "edgeconv", {"hidden": 8}), graph)
    assert "reads other 1x8, row 1x8, weight" in str(known)
    assert "no layer of this model" in str(weft.explain(build_model(graph, "gcn", {"hidden": 8}), graph))


def test_it_is_data_too(graph: weft.Graph) -> None:
    found = json.loads(json.dumps(weft.explain(Gated(graph.x.shape[1]), graph).to_dict()))
    (message,) = found["messages"]
    assert message["edges"] == graph.num_edges
    kernel = message["compiled"]["kernels"][0]
    assert kernel["forward"]["read"] > graph.num_edges * 3 * 4
    assert [each["rows"] for each in message["compiled"]["operators"] if each["name"] == "mm"] == [300, 300]


def test_parameters_stay_as_they_were(graph: weft.Graph) -> None:
    model = Gated(graph.x.shape[1])
    weft.explain(model, graph)
    assert all(each.grad is None for each in model.parameters())


def test_what_is_no_model_or_graph_is_refused(graph: weft.Graph) -> None:
    with pytest.raises(weft.InputError, match=r"expected a model"):
        weft.explain("gcn", graph)  # type: ignore[arg-type]
    with pytest.raises(weft.InputError, match=r"expected a weft.Graph"):
        weft.explain(Gated(3), "cora.npz")  # type: ignore[arg-type]


def test_the_compiler_that_is_off_is_said_to_be_off(graph: weft.Graph) -> None:
    before = weft.compile_messages(False)
    try:
        text = str(weft.explain(Gated(graph.x.shape[1]), graph))
    finally:
        weft.compile_messages(before)
    assert "the compiler is off" in text
    assert "\n  compiled: " not in text
