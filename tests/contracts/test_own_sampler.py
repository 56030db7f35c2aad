"""A sampler says on its class what it can do, and is accepted and refused by that alone."""

from typing import Any, ClassVar

import pytest
import torch

import weft
from weft.errors import GraphError, InputError, RecipeError
from weft.graph import Graph
from weft.samplers import Batch, EdgeLoader, NeighborSampler, Sampler, samplers
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.placement import Nearby


class Whole(Sampler):
    """All edges of the neighbourhood of seeds, and nothing beyond what a sampler must do."""

    def __init__(self, graph: Graph, fanout: Any, *, seed: int = 0, temporal: bool = False) -> None:
        super().__init__(graph, seed=seed)
        self.draws = NeighborSampler(graph, [-1] * len(fanout), seed=seed)

    def sample(self, seeds: Any, epoch: int = 0, step: int = 0) -> Batch:
        return self.draws.sample(seeds, epoch, step)


class Near(NeighborSampler):
    """What its base does, but on the CPU."""

    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    hides: ClassVar[bool] = False


@pytest.fixture(autouse=True)
def entered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert samplers.names()
    monkeypatch.setitem(samplers._entries, "whole", Whole)
    monkeypatch.setitem(samplers._entries, "near", Near)


def graph() -> Graph:
    return weft.datasets.open_dataset(name="community", nodes=40, features=4, classes=2)


def train(sampler: Any, **options: Any) -> float:
    strategy = {"name": "sampled", "sampler": sampler, "fanout": -1, "batch_size": 16, **options}
    return weft.train(graph(), "gcn", strategy=strategy, epochs=2, hidden=4, layers=2).loss


def test_it_trains_by_its_name() -> None:
    assert train("whole") == train("neighbor")


def test_parts_of_a_graph_are_for_those_that_say_so() -> None:
    with pytest.raises(
        RecipeError, match=r"strategy\.sampler: 'whole' draws from a whole graph.* labor, near"
    ):
        train("whole", parts=2)
    assert train("near", parts=2, partitioner="hash") == pytest.approx(train("neighbor"))


def test_times_are_for_those_that_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"sampler": "whole", "temporal": True}
    with pytest.raises(RecipeError, match=r"drawn without strategy\.sampler = 'whole'"):
        Sampled.check(options)
    monkeypatch.setattr(Whole, "by_time", True)
    Sampled.check(options)


def test_edges_are_hidden_by_those_that_say_so() -> None:
    with pytest.raises(InputError, match="hide: its draws see all edges"):
        EdgeLoader(Near(graph(), [2]), None)


def test_a_gpu_draws_for_those_that_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    far = graph().to(device="meta")
    with pytest.raises(GraphError, match="lies on meta, but Near draws on the CPU"):
        Sampler.__init__(Near.__new__(Near), far)
    assert NeighborSampler(graph(), [2]).gpu_obstacle() != "NeighborSampler draws on the CPU"
    assert Near(graph(), [2]).gpu_obstacle() == "Near draws on the CPU"
    held = Nearby.__new__(Nearby)
    held.graph = graph()
    with pytest.raises(RecipeError, match="sample_on: Whole draws on the CPU"):
        held.sampler(lambda each: Whole(each, [2]), "gpu")
    monkeypatch.setattr(Whole, "devices", ("cpu", "cuda"))
    assert Whole(graph(), [2]).gpu_obstacle() == ""


def test_a_step_is_captured_for_samplers_that_are_plain() -> None:
    assert NeighborSampler(graph(), [2]).plain
    weighted = torch.ones(graph().num_edges)
    assert not NeighborSampler(graph(), [2], weight=weighted).plain
    assert not Whole(graph(), [2]).plain
