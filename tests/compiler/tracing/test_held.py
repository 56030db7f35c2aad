"""What a function reaches is put back after a trial, and stands as it did while it runs again."""

import random
from collections import OrderedDict, deque
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from weft.compiler.tracing.captures import NotCompiled
from weft.compiler.tracing.held import held_by, undisturbed

STEP = 1


class Counter:
    """Counts in every way."""

    def __init__(self) -> None:
        self.number = 0
        self.items, self.seen, self.last = [1], {1}, deque([1], maxlen=2)
        self.by_name = OrderedDict(a=1)

    def __call__(self) -> None:
        global STEP
        STEP += 1
        self.number += 1
        self.items.append(2)
        self.seen.add(2)
        self.last.append(2)
        self.by_name["b"] = 2
        self.new = True


def test_all_that_a_call_changes_is_put_back() -> None:
    counter, calls = Counter(), 0

    def function() -> None:
        nonlocal calls
        calls += 1
        counter()

    with undisturbed(function):
        function()
        assert (calls, STEP, counter.number, len(counter.last)) == (1, 2, 1, 2)
    assert (calls, STEP, counter.number) == (0, 1, 0)
    assert (counter.items, counter.seen, counter.last) == ([1], {1}, deque([1]))
    assert counter.by_name == OrderedDict(a=1)
    assert not hasattr(counter, "new")


OWN, NUMPY, LEGACY = random.Random(0), np.random.default_rng(0), np.random.RandomState(0)
TORCH, METHOD = torch.Generator(), random.Random(1).random
GENERATORS: dict[str, Any] = {
    "random": lambda: random.random(),
    "numpy": lambda: np.random.rand(),
    "own random": lambda: OWN.random(),
    "own numpy": lambda: NUMPY.random(),
    "legacy numpy": lambda: LEGACY.rand(),
    "torch": lambda: torch.rand(1, generator=TORCH).item(),
    "a method": lambda: METHOD(),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_draws_are_drawn_again(name: str) -> None:
    draw = GENERATORS[name]
    held = held_by(draw)
    first, second = draw(), draw()
    with held.again():
        assert draw() == first
    third = draw()
    assert held.restored()
    assert [draw(), draw(), draw()] == [first, second, third]
    assert len({first, second, third}) == 3


def test_values_are_those_of_before_while_it_runs_again_and_caches_stay() -> None:
    module, cache = nn.Dropout(), {"old": 1}
    number = 1

    def function() -> tuple[bool, int, dict[str, int]]:
        cache[f"of {number}"] = number
        return module.training, number, cache

    held = held_by(function)
    number = 2
    module.eval()
    with held.again():
        assert function()[:2] == (True, 1)
        cache["old"] = 5
    assert not module.training
    assert number == 2
    assert cache == {"old": 1, "of 1": 1}


@pytest.mark.parametrize("make", [lambda: iter([1]), lambda: (i for i in [1]), lambda: map(abs, [1])])
def test_what_reads_an_iterator_is_not_tried(make: Any) -> None:
    values = make()
    with pytest.raises(NotCompiled, match=f"reads a {type(values).__name__}, which a trial would use up"):
        held_by(lambda: next(values)).require_lasting()
    with pytest.raises(NotCompiled):
        held_by(values.__next__).require_lasting()


def test_an_iterator_of_python_code_is_put_back() -> None:
    class Count:
        number = 0

        def __iter__(self) -> "Count":
            return self

        def __next__(self) -> int:
            self.number += 1
            return self.number

    values = Count()
    held = held_by(lambda: next(values))
    held.require_lasting()
    assert [next(values), next(values)] == [1, 2]
    assert held.restored()
    assert next(values) == 1
