"""A strategy says on its class what it can do, and is accepted and refused by that alone."""

import inspect
from typing import Any, ClassVar

import pytest
import torch

import weft
from weft.config import Recipe
from weft.errors import RecipeError
from weft.exchanges.base import exchanges
from weft.exchanges.exact import Exact
from weft.strategies.base import Strategy, strategies
from weft.strategies.halo.halo import Halo
from weft.strategies.reducer import PlainReducer
from weft.strategies.single import Single
from weft.strategies.whole import Whole
from weft.train import fit, resolve
from weft.train.workers import worker

LINKS = {"name": "link_prediction"}


class Mine(Single):
    """One process, and nothing beyond what a strategy must do."""

    name: ClassVar[str] = "mine"
    over: ClassVar[tuple[str, ...]] = ("nodes",)
    devices: ClassVar[tuple[str, ...]] = ("cpu",)


class Able(Halo):
    """Several workers, on their GPUs by an exchange of the test's own."""

    name: ClassVar[str] = "able"
    exchanges: ClassVar[tuple[str, ...]] = ("exact", "near")
    devices: ClassVar[tuple[str, ...]] = ("cuda",)


class Near(Exact):
    """Rows of the host's memory alone."""

    devices: ClassVar[tuple[str, ...]] = ("cpu",)


@pytest.fixture(autouse=True)
def entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enter both, and have a GPU to choose."""
    assert strategies.names()
    assert exchanges.names()
    monkeypatch.setitem(strategies._entries, "mine", Mine)
    monkeypatch.setitem(strategies._entries, "able", Able)
    monkeypatch.setitem(exchanges._entries, "near", Near)
    for module in (fit, resolve):
        monkeypatch.setattr(module, "choose_device", lambda name: torch.device(name.replace("auto", "cuda")))


def resolved(workers: int = 1, **strategy: Any) -> resolve.Resolved:
    return resolve.resolve(Recipe(strategy=strategy, train={"device": "cuda"}), workers=workers)


def test_one_process_trains_where_the_class_says() -> None:
    assert fit.device_for(Mine, "auto").type == "cpu"
    assert fit.device_for(Able, "auto").type == "cuda"
    with pytest.raises(RecipeError, match=r"'cuda' with strategy 'mine' is not supported.* able,"):
        fit.device_for(Mine, "cuda")
    with pytest.raises(RecipeError, match="'cpu' with strategy 'able' is not supported"):
        fit.device_for(Able, "cpu")


def test_workers_train_where_strategy_and_exchange_say() -> None:
    worker._check_device(resolved(2, name="able"))
    told = "is for strategy 'able' or 'halo' with exchange 'exact'; use these"
    for refused in ({"name": "able", "exchange": "near"}, {"name": "sequential"}, {"name": "sampled"}):
        with pytest.raises(RecipeError, match=told):
            worker._check_device(resolved(2, **refused))


def test_workers_are_for_those_that_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match="'mine' trains in one process; use 'halo'"):
        resolved(2, name="mine")
    monkeypatch.setattr(Able, "on_workers", False)
    with pytest.raises(RecipeError, match="'able' trains in one process; use 'halo'"):
        resolved(2, name="able")


def test_targets_are_those_that_the_class_names() -> None:
    links = Recipe(strategy={"name": "able"}, task=LINKS)
    assert resolve.resolve(links, workers=2).strategy == "able"
    with pytest.raises(RecipeError, match=r"'mine' does not train on pairs.*use one of able, buckets, halo"):
        resolve.resolve(Recipe(strategy={"name": "mine"}, task=LINKS))


def test_a_graph_goes_to_the_model_where_the_class_says(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[bool] = []
    graph = weft.datasets.open_dataset(name="community", nodes=30, features=4, classes=2)
    monkeypatch.setattr(fit, "check_memory", lambda *_: moved.append(True))
    for near in (True, False):
        monkeypatch.setattr(Mine, "graph_on_device", classmethod(lambda cls, options, near=near: near))
        weft.train(graph, "gcn", strategy="mine", epochs=1, hidden=2)
    assert moved == [True]


@pytest.mark.parametrize("name", [*strategies.names(), "mine", "able"])
def test_what_a_class_says_is_known(name: str) -> None:
    kind: type[Strategy] = strategies[name]
    assert kind.name == name
    assert {*kind.devices, *kind.worker_devices} <= {"cpu", "cuda"}
    assert set(kind.over) <= {"nodes", "pairs"}
    assert set(kind.exchanges) <= set(exchanges.names())


@pytest.mark.parametrize("name", strategies.names())
def test_a_strategy_is_composed_and_none_is_a_kind_of_another(name: str) -> None:
    assert strategies[name].__bases__ == (Strategy,)
    methods = {each for each, held in vars(strategies[name]).items() if inspect.isfunction(held)}
    told = {
        "__init__",
        "_check_times",
        "_check_group",
    }  # options and checks: what is done stands in the parts
    assert methods <= told


class Halved(PlainReducer):
    """Half of every gradient."""

    def backward(self, loss: torch.Tensor) -> None:
        super().backward(loss / 2)


def test_parts_of_strategies_go_with_each_other() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=30, features=4, classes=2)
    weights = []
    for reducer in (None, Halved()):
        strategy, model = Strategy(graph, seed=1), weft.nn.Stack(4, 2, layers=1, dropout=0.0)
        model.load_state_dict({name: torch.ones_like(held) for name, held in model.state_dict().items()})
        strategy.compose(Whole(strategy.shared, graph), reducer=reducer)
        loss = strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=1.0))
        assert loss == pytest.approx(torch.log(torch.tensor(2.0)).item())
        weights.append(next(model.parameters()).detach() - 1)
    assert torch.allclose(weights[0], 2 * weights[1])
    assert weights[0].abs().max() > 0
