"""What a message reads is its key: whatever changes in it, a trace of before is not used."""

import functools
import random
import sys
import types
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from weft.compiler.tracing.captures import NotCompiled, captures
from weft.compiler.tracing.trace import Form, trace
from weft.graph import Block
from weft.graph.message import compiled

SLOPE = 0.2
TABLE = {"scale": 2.0}
STREAM = iter([1])
SPARSE = torch.eye(3).to_sparse()
BOUND = torch.ones(3).add
SETTINGS = types.ModuleType("settings")
FACTOR = "factor"


def uses_global(u: Tensor) -> Tensor:
    return F.leaky_relu(u, SLOPE)


def uses_table(u: Tensor) -> Tensor:
    return u * TABLE["scale"]


def helper(u: Tensor) -> Tensor:
    return u * SLOPE


def uses_helper(u: Tensor) -> Tensor:
    return helper(u)


class Layer(nn.Module):
    gain = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.slope = 0.1
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
        self.settings = {"eps": [1.0, 2.0]}

    def message(self, u: Tensor) -> Tensor:
        return self.inner(u) * self.slope * self.gain * self.settings["eps"][0] + self.more(u)  # type: ignore[no-any-return]

    def more(self, u: Tensor) -> Tensor:
        return u * SLOPE


def changes(layer: Layer, change: Callable[[Layer], Any]) -> bool:
    before = captures(layer.message).key
    assert captures(layer.message).key == before
    change(layer)
    return captures(layer.message).key != before


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: setattr(layer, "slope", 0.3),
        lambda layer: layer.eval(),
        lambda layer: layer.inner.eval(),
        lambda layer: setattr(layer.inner[1], "p", 0.1),
        lambda layer: layer.settings["eps"].__setitem__(0, 5.0),
        lambda layer: layer.inner.append(nn.ReLU()),
        lambda layer: layer.inner.__setitem__(1, nn.ReLU()),
        lambda layer: layer.inner[0].register_forward_hook(lambda module, args, out: out * 2),
        lambda layer: layer.inner[0].weight.requires_grad_(False),
        lambda layer: layer.to(torch.float64),
        lambda layer: setattr(layer.inner[0], "bias", None),
        lambda layer: setattr(layer, "more", lambda u: u),
    ],
)
def test_a_changed_module_is_another_key(change: Callable[[Layer], Any]) -> None:
    assert changes(Layer(), change)


def test_a_class_attribute_and_a_method_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert changes(Layer(), lambda layer: monkeypatch.setattr(Layer, "gain", 2.0))
    assert changes(Layer(), lambda layer: monkeypatch.setattr(Layer, "more", lambda self, u: u))


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [(uses_global, "SLOPE", 0.5), (uses_helper, "SLOPE", 0.5), (uses_table, "TABLE", {"scale": 3.0})],
)
def test_globals_count(monkeypatch: pytest.MonkeyPatch, message: Any, name: str, value: Any) -> None:
    before = captures(message).key
    monkeypatch.setitem(message.__globals__, name, value)
    assert captures(message).key != before


def test_a_global_behind_a_method_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Layer()
    before = captures(layer.message).key
    monkeypatch.setitem(globals(), "SLOPE", 0.7)
    assert captures(layer.message).key != before


def test_closures_and_defaults_count_by_value() -> None:
    def make(number: float, word: str = "a") -> Callable[[Tensor], Tensor]:
        return lambda u, own=word: u * number if own else u

    key = captures(make(1.0)).key
    assert captures(make(1.0)).key == key
    assert captures(make(2.0)).key != key
    assert captures(make(1)).key != key, "1 and 1.0 give other types"
    assert captures(make(1.0, "b")).key != key
    assert captures(functools.partial(make(1.0), own="c")).key != captures(functools.partial(make(1.0))).key


class Held:
    """An object without a dictionary."""

    __slots__ = ("__weakref__", "gain")

    def __init__(self, gain: float) -> None:
        self.gain = gain


def test_keyword_defaults_sets_and_a_module_of_ones_own_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(number: float) -> Callable[[Tensor], Tensor]:
        def message(u: Tensor, *, own: float = number) -> Tensor:
            return u * own

        return message

    def among(numbers: set[float]) -> Callable[[Tensor], Tensor]:
        return lambda u: u * max(numbers)

    def message(u: Tensor) -> Tensor:
        return u * SETTINGS.scale  # type: ignore[no-any-return]

    assert captures(make(1.0)).key == captures(make(1.0)).key != captures(make(2.0)).key
    assert captures(among({1.0})).key == captures(among({1.0})).key != captures(among({1.0, 2.0})).key
    monkeypatch.setattr(SETTINGS, "scale", 1.0, raising=False)
    before = captures(message).key
    monkeypatch.setattr(SETTINGS, "scale", 2.0)
    assert captures(message).key != before


def test_objects_with_slots_and_behind_references_count() -> None:
    held = Held(1.0)
    reference = weakref.ref(held)

    def direct(u: Tensor) -> Tensor:
        return u * held.gain

    def behind(u: Tensor) -> Tensor:
        return u * reference().gain  # type: ignore[union-attr]

    for message in (direct, behind):
        held.gain = 1.0
        before = captures(message, frozenset()).key
        held.gain = 2.0
        assert captures(message, frozenset()).key != before


def test_tensors_are_found_live_and_keyed_by_form() -> None:
    def make(weight: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda u: u * weight

    one, two = torch.ones(3), torch.zeros(3)
    assert captures(make(one)).key == captures(make(two)).key
    assert captures(make(two)).tensors[0] is two
    assert captures(make(torch.ones(4))).key != captures(make(one)).key
    assert captures(make(torch.ones(3, dtype=torch.float64))).key != captures(make(one)).key


def test_one_tensor_in_two_places_is_not_two() -> None:
    def make(a: Tensor, b: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda u: u * a + b

    one = torch.ones(3)
    assert captures(make(one, one)).key != captures(make(one, torch.ones(3))).key

    def among(*three: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda u: u * three[0] + three[1] - three[2]

    two = torch.ones(3)
    assert captures(among(one, two, one)).key != captures(among(one, two, two)).key


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (lambda u: print(u), "print"),
        (lambda u: u * torch.is_grad_enabled(), "is_grad_enabled"),
        (lambda u: next(STREAM) * u, "may change unseen"),
        (lambda u: u * SPARSE, "sparse"),
        (lambda u: BOUND(u), "method of a Tensor"),
        (lambda u: u * random.random(), "whose answers may change"),
    ],
)
def test_what_cannot_be_known_is_refused(message: Any, reason: str) -> None:
    with pytest.raises(NotCompiled, match=reason):
        captures(message)


def follows(monkeypatch: pytest.MonkeyPatch, message: Any, owner: Any, name: str) -> bool:
    """Whether another value of an attribute gives another key, or the message is refused."""
    form = Form("source", torch.Size([4]), torch.float32, torch.device("cpu"))
    keys = []
    for value in (2.0, 3.0):
        monkeypatch.setattr(owner, name, value, raising=False)
        try:
            keys.append(captures(message, trace(message, [form]).executed).key)
        except NotCompiled:
            return True
    return keys[0] != keys[1]


class Times(float):
    """A number with an attribute."""

    scale = 1.0

    def __init__(self, number: float) -> None:
        self.gain = number


class Several(list):  # type: ignore[type-arg]
    """A list with an attribute."""


class Named(dict):  # type: ignore[type-arg]
    """A dictionary with an attribute."""


class Looked:
    """Gives what a module holds, whatever it is asked for."""

    def __getitem__(self, name: str) -> float:
        return OUTER.inner.scale  # type: ignore[no-any-return]


OUTER = types.ModuleType("weft_outer")
OUTER.inner = types.ModuleType("weft_outer.inner")  # type: ignore[attr-defined]
SEVERAL, NAMED, LOOKED = Several([1.0]), Named(), Looked()


@functools.wraps(torch.relu)
def wrapped(u: Tensor) -> Tensor:
    return u * OUTER.inner.scale  # type: ignore[no-any-return]


def counted(u: Tensor) -> Tensor:
    return u * counted.scale  # type: ignore[attr-defined, no-any-return]


def imports(u: Tensor) -> Tensor:
    from weft_outer import inner  # type: ignore[import-not-found]

    return u * inner.scale  # type: ignore[no-any-return]


def closed() -> Callable[[Tensor], Tensor]:
    held = OUTER
    return lambda u: u * held.inner.scale


@pytest.mark.parametrize(
    ("message", "owner", "name"),
    [
        (lambda u: u * OUTER.inner.scale, OUTER.inner, "scale"),
        (lambda u: u * getattr(OUTER.inner, "scale"), OUTER.inner, "scale"),  # noqa: B009
        (closed(), OUTER.inner, "scale"),
        (imports, OUTER.inner, "scale"),
        (lambda u: u * LOOKED["any"], OUTER.inner, "scale"),
        (wrapped, OUTER.inner, "scale"),
        (counted, counted, "scale"),
        (lambda u: u * SEVERAL.scale, SEVERAL, "scale"),
        (lambda u: u * NAMED.scale, NAMED, "scale"),
    ],
)
def test_a_key_follows_what_a_message_reads(
    monkeypatch: pytest.MonkeyPatch, message: Any, owner: Any, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "weft_outer", OUTER)
    assert follows(monkeypatch, message, owner, name)


def test_numbers_are_told_apart_by_what_they_do() -> None:
    def make(by: Any) -> Callable[[Tensor], Tensor]:
        return lambda u: u * by

    def key(by: Any) -> Any:
        return captures(make(by)).key

    assert key(0.0) != key(-0.0)
    assert key(float("nan")) == key(float("nan"))
    assert key(Times(1.0)) != key(Times(2.0))
    assert key(Times(1.0)) == key(Times(1.0))
    assert key(Several([1.0])) != key(Several([2.0]))
    assert key({1}) != key({1.0})
    assert key([0, 1]) != key((0, 1)), "a list picks columns, a tuple is an index of each axis"
    assert key(slice(0, 4, 1)) != key(slice(0, 4, 2))
    assert key(defaultdict(int)) != key(defaultdict(float))
    before = key(1.0)
    torch.set_default_dtype(torch.float64)
    try:
        assert key(1.0) != before
    finally:
        torch.set_default_dtype(torch.float32)


def test_library_modules_inside_a_message_stay_compiled() -> None:
    def message(u: Tensor) -> Tensor:
        import math

        return torch.nn.functional.relu(u) * math.pi

    form = Form("source", torch.Size([4]), torch.float32, torch.device("cpu"))
    assert trace(message, [form]).graph


def test_an_attribute_of_a_module_that_a_variable_names_is_in_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def message(u: Tensor) -> Tensor:
        return u * getattr(SETTINGS, FACTOR)  # type: ignore[no-any-return]

    monkeypatch.setattr(SETTINGS, "factor", 1.0, raising=False)
    first = captures(message).key
    monkeypatch.setattr(SETTINGS, "factor", 2.0)
    assert captures(message).key != first


def test_hooks_of_all_modules_count_and_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, u = nn.Linear(2, 2), torch.ones(3, 2)
    block = Block(torch.tensor([0, 2, 3, 3]), torch.tensor([0, 1, 2]), num_src=3)
    monkeypatch.setattr(compiled, "LEAST_NUMBERS", 0)

    def message(u: Tensor) -> Tensor:
        return layer(u)  # type: ignore[no-any-return]

    before, out = captures(message).key, block.propagate(message, src=(u,))
    hook = register_module_forward_hook(lambda module, given, out: out * 3)
    try:
        assert captures(message).key != before
        torch.testing.assert_close(block.propagate(message, src=(u,)), out * 3)
    finally:
        hook.remove()
    assert captures(message).key == before
    torch.testing.assert_close(block.propagate(message, src=(u,)), out)
