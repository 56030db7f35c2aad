"""Models as plain values and tensors: another process makes the same one, or a line says why not."""

import json
from collections import Counter, OrderedDict, defaultdict
from enum import IntEnum
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from own_code import Looped, Net
from torch import nn

import weft
from weft.errors import InputError
from weft.layers.base import layers
from weft.train.user.portable import describe, known_arguments, rebuild


class Mixed(nn.Module):
    """What models hold: layers of all makers, functions, values, tensors, one module twice, tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first = weft.nn.SAGE(4, 6)
        self.again = self.first
        self.norm = nn.BatchNorm1d(6)
        self.tied = nn.Linear(6, 6)
        self.tied.weight = nn.Parameter(torch.randn(6, 6))
        self.other = nn.Linear(6, 6)
        self.other.weight = self.tied.weight
        self.several = nn.ModuleList([nn.Linear(2, 3), nn.Dropout(0.25)])
        self.act, self.widths, self.names = F.elu, (4, 6), {"a": [1, 2.5, None]}
        self.register_buffer("scale", torch.tensor([2.0]), persistent=False)
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.precision = torch.float64
        self.eval()
        self.norm.train()


def again(model: nn.Module) -> nn.Module:
    tensors: dict[str, torch.Tensor] = {}
    described = describe(model, tensors)
    before = torch.random.get_rng_state()
    made = rebuild(json.loads(json.dumps(described)), tensors)
    assert torch.equal(torch.random.get_rng_state(), before), "no draw of the user's"
    return made


def test_everything_that_a_model_holds_is_there_again() -> None:
    model = Mixed()
    made = again(model)
    assert isinstance(made, Mixed)
    assert made.again is made.first
    assert made.other.weight is made.tied.weight
    assert (made.act, made.widths, made.names) == (F.elu, (4, 6), {"a": [1, 2.5, None]})
    assert made.precision is torch.float64
    assert torch.equal(made.scale, model.scale)
    assert "scale" not in made.state_dict()
    assert not made.frozen.requires_grad
    assert (made.training, made.norm.training) == (False, True)
    for name, value in model.state_dict().items():
        assert torch.equal(made.state_dict()[name], value), name


@pytest.mark.parametrize("name", sorted(set(layers.names()) - {"gine"}))
def test_every_stack_is_there_again(name: str) -> None:
    model = weft.nn.Stack(8, 3, layer=name, hidden=8)
    assert repr(again(model)) == repr(model)


def test_convolutions_of_pyg_are_there_again() -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    convolutions = [
        pyg.GATConv(4, 3, heads=2, bias=False),
        pyg.SAGEConv(4, 3, bias=False),
        pyg.GCNConv(4, 3),
        pyg.GINConv(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), train_eps=True),
    ]
    graph = weft.datasets.open_dataset(name="community", nodes=30, degree=4, classes=3, features=4, seed=1)
    for conv in convolutions:
        model = weft.nn.PyG(conv)
        made = again(model)
        with torch.no_grad():
            torch.testing.assert_close(made(graph.block(), graph.x), model(graph.block(), graph.x))


def test_arguments_are_known_where_a_model_keeps_them() -> None:
    assert known_arguments(Looped(4, 3, scale=2.0)) == {"in_features": 4, "out_features": 3, "scale": 2.0}
    assert known_arguments(Net(4, 3)) == {}
    changed = Looped(4, 3)
    changed.out_features = 5
    assert known_arguments(changed) == {}


def test_weights_of_the_users_model_are_its_own() -> None:
    model = Net(4, 3)
    made = again(model)
    with torch.no_grad():
        made.skip.weight.zero_()  # type: ignore[union-attr, operator]
    assert model.skip.weight.abs().sum() > 0


class Level(IntEnum):
    """A number with a name."""

    LOW = 1


class Pair(NamedTuple):
    """A tuple with names."""

    a: int


@pytest.mark.parametrize("held", [Level.LOW, Pair(1), defaultdict(list), Counter("a"), [Level.LOW]])
def test_what_would_come_back_as_another_type_is_refused(held: object) -> None:
    model = nn.Linear(2, 2)
    model.held = held  # type: ignore[assignment]
    with pytest.raises(
        InputError, match=r"^model: workers cannot make .* held is of \S+, which is no plain type"
    ):
        describe(model, {})


def test_the_order_of_a_dict_is_told_as_what_it_is() -> None:
    model = nn.Linear(2, 2)
    model.held = OrderedDict(b=1, a=(2,))  # type: ignore[assignment]
    held = vars(again(model))["held"]
    assert type(held) is OrderedDict
    assert list(held.items()) == [("b", 1), ("a", (2,))]
