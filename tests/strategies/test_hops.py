"""How many hops a model takes is found out, or asked for in one line."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft.errors import InputError
from weft.strategies.hops import hops_of
from weft.train.launch import train

X = torch.randn(10, 4)


@pytest.fixture(scope="module")
def graph() -> weft.Graph:
    return weft.datasets.open_dataset(name="community", nodes=100, degree=6, classes=3, features=8, seed=1)


class Direct(nn.Module):
    """Has no layer: it reads blocks itself, as many as it says to itself alone."""

    def __init__(self, reads: int, way: str = "place") -> None:
        super().__init__()
        self.reads, self.way = reads, way
        self.end = nn.Linear(4, 3)

    def forward(self, blocks: list[weft.Block], x: Tensor) -> Tensor:
        h = x
        chosen = blocks if self.way == "all" else [blocks[place] for place in range(self.reads)]
        for block in chosen:
            h = block.aggregate(h, "mean")
        return self.end(h)  # type: ignore[no-any-return]


class Zipped(nn.Module):
    """One layer, used for every hop; takes a block more than it uses."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([weft.nn.SAGE(4, 4)] * 2)
        self.end = nn.Linear(4, 3)

    def forward(self, blocks: list[weft.Block], x: Tensor) -> Tensor:
        for block, layer in zip(blocks, self.layers, strict=False):
            x = layer(block, x)
        return self.end(x)  # type: ignore[no-any-return]


class OneBlock(nn.Module):
    """Called as a layer is, with one block for all of its layers."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([weft.nn.SAGE(8, 8) for _ in range(layers)])

    def forward(self, block: weft.Block, h: Tensor) -> Tensor:
        for layer in self.layers:
            h = layer(block, h)
        return h


def test_a_trial_tells_which_blocks_a_model_reads() -> None:
    assert hops_of(Direct(3), X) == 3
    assert hops_of(Zipped(), X) == 2
    assert hops_of(weft.nn.Stack(4, 3, layer="sage", layers=4), X) == 4
    assert hops_of(weft.nn.Stack(4, 3, layer="appnp", layers=1), X) == 10


def test_what_a_model_says_itself_counts_and_a_model_that_takes_any_number_tells_nothing() -> None:
    any_number = Direct(0, "all")
    assert hops_of(any_number, X) is None
    any_number.hops = 2  # type: ignore[assignment]
    assert hops_of(any_number, X) == 2


def test_a_model_that_fails_on_the_trial_is_counted_by_its_layers() -> None:
    assert hops_of(nn.ModuleList([weft.nn.SAGE(4, 4), weft.nn.SAGE(4, 4)]), X) == 2


def test_a_trial_leaves_no_trace() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4))
    model.train()
    state = torch.random.get_rng_state()
    assert hops_of(model, X) is None
    assert model.training
    assert int(model[0].num_batches_tracked) == 0
    assert torch.equal(torch.random.get_rng_state(), state)


def test_hops_are_asked_for_in_one_line_and_given_in_one_word(graph: weft.Graph) -> None:
    given: dict[str, Any] = {
        "epochs": 2,
        "strategy": {"name": "sampled", "fanout": -1},
        "precision": "float64",
    }
    wide = graph.with_data(x=graph.x[:, :4])
    with pytest.raises(InputError, match="Direct does not tell how many hops it takes: say hops=2") as caught:
        train(wide, Direct(0, "all"), **given)
    assert "\n" not in str(caught.value)
    torch.manual_seed(0)
    sampled = train(wide, Direct(0, "all"), hops=2, **given)
    torch.manual_seed(0)
    whole = train(wide, Direct(2), **{**given, "strategy": "single"})
    assert sampled.loss == pytest.approx(whole.loss, rel=1e-9)
    torch.manual_seed(0)
    assert train(wide, Direct(2), **given).loss == pytest.approx(whole.loss, rel=1e-9)
    with pytest.raises(InputError, match="hops: expected a number >= 1, got 0"):
        train(wide, Direct(2), hops=0, **given)


def test_a_model_of_one_block_trains_on_whole_graphs_and_is_told_what_batches_need(graph: weft.Graph) -> None:
    torch.manual_seed(0)
    given: dict[str, Any] = {"epochs": 2, "precision": "float64"}
    model = OneBlock(2)
    twin = OneBlock(2)
    twin.load_state_dict(model.state_dict())
    whole = train(graph, model, **given)
    parts = train(graph, twin, strategy={"name": "halo", "partitioner": "hash"}, parts=3, **given)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-9)
    with pytest.raises(InputError, match=r"OneBlock\.forward takes one block, a batch has one a hop"):
        train(graph, OneBlock(2), strategy="sampled", **given)
    assert train(graph, OneBlock(1), strategy="sampled", **given).epochs == 2
