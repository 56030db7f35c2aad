"""The programme finds what trying every choice finds."""

import random
from collections.abc import Iterable, Sequence
from itertools import product

import pytest

from weft.strategies.memory.programme import LayerChoice, LayerNeed, cheapest, cost_of


def every(layers: Sequence[LayerNeed]) -> Iterable[tuple[LayerChoice, ...]]:
    """Give every choice there is."""
    ways = []
    for number, layer in enumerate(layers):
        flags = product((False, True), repeat=1 + len(layer.kept))
        plain = [LayerChoice(False, first, tuple(rest)) for first, *rest in flags]
        last = number + 1 == len(layers)
        ways.append(plain if last else [*plain, LayerChoice(True), LayerChoice(True, True)])
    return product(*ways)


def drawn(rng: random.Random) -> list[LayerNeed]:
    """Return a model of one to three layers, and a loss; costs are small numbers, so that many tie."""
    found = []
    for number in range(rng.randint(2, 4)):
        kept = tuple(rng.randint(1, 9) for _ in range(rng.randint(0, 2)))
        read = rng.randint(1, 9) if number else 0
        room = sum(kept) + read + rng.randint(0, 9)
        flags = rng.random() < 0.5, rng.random() < 0.5
        found.append(LayerNeed(rng.randint(1, 40), room, kept, read, *flags, brought=rng.randint(0, 3)))
    return found


@pytest.mark.parametrize("seed", range(150))
def test_the_least_time_is_that_of_all_choices_tried(seed: int) -> None:
    rng = random.Random(seed)
    layers, rate = drawn(rng), rng.choice([0.5, 2.0, 5.0])
    costs = [cost_of(layers, choices, rate) for choices in every(layers)]
    least = min(each.peak for each in costs)
    for memory in (least - 1, least, least + rng.randint(1, 15), max(each.peak for each in costs)):
        found = cheapest(layers, memory, rate)
        fitting = [each.seconds for each in costs if each.peak <= memory]
        if found is None:
            assert not fitting
            continue
        told = cost_of(layers, found, rate)
        assert told.peak <= memory
        assert told.seconds == min(fitting)


def test_where_all_fits_all_is_kept() -> None:
    layers = [LayerNeed(1.0, 10, (5,)), LayerNeed(1.0, 10, (5,), 4, True), LayerNeed(0.0, 3, (), 4)]
    assert cheapest(layers, 100, 1.0) == tuple(
        LayerChoice(False, False, (False,) * len(each.kept)) for each in layers
    )


def test_what_is_slow_to_make_is_put_aside_and_what_is_slow_to_move_made_again() -> None:
    layers = [LayerNeed(1.0, 100, (80,)), LayerNeed(1.0, 100, (), 10)]
    (kept, _) = cheapest(layers, 110, 1.0) or ()
    assert kept == LayerChoice(True)
    (kept, _) = cheapest(layers, 110, 0.001) or ()
    assert kept == LayerChoice(False, False, (True,))


def test_rows_between_layers_are_kept_once_for_both() -> None:
    first = LayerNeed(50.0, 20, (), 0, keeps_made=True)
    layers = [first, LayerNeed(50.0, 20, (), 8, keeps_read=True), LayerNeed(0.0, 2, (), 8, keeps_read=False)]
    keep = tuple(LayerChoice(False) for _ in layers)
    assert cost_of(layers, keep, 1.0).peak == 20  # not 8 + 8 beside the loss
    assert (
        cost_of(layers, (LayerChoice(False), LayerChoice(False, True), LayerChoice(False)), 1.0).seconds == 8
    )


def test_many_tensors_of_odd_sizes_are_planned_at_once() -> None:
    rng = random.Random(1)
    sizes = [tuple(rng.randint(10**8, 10**9) for _ in range(8)) for _ in range(12)]
    layers = [LayerNeed(1.0, sum(each), each, 10**8 * bool(n), True) for n, each in enumerate(sizes)]
    layers.append(LayerNeed(0.0, 10**8, (), 10**8))
    memory = sum(map(sum, sizes)) // 2
    found = cheapest(layers, memory, 1e-9)
    assert found is not None
    assert cost_of(layers, found, 1e-9).peak <= memory
