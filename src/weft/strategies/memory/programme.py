"""What to keep for backward, make again, or put aside: the least time under a bound, by a dynamic programme.

Layers run forward one after the other, and backward from the last. While a layer runs, either way, what the
layers before it keep lies in memory beside it. So a choice for the first layers is known by two numbers, the
bytes that they keep and the seconds that they cost, and of two choices the one that is no better in either
need not be gone on with (ROC decides by tensor, between keeping and moving; here a layer may also run again).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_STEPS = 1 << 11
"""Sizes are rounded up to this part of the memory, which bounds the choices that are gone on with."""


@dataclass(frozen=True)
class LayerNeed:
    """What a layer takes, as a trial measured it."""

    seconds: float
    """Of running it forward once more."""
    room: int
    """The bytes in which it runs forward and backward: what it reads, keeps, makes, and their gradients."""
    kept: tuple[int, ...] = ()
    """The bytes of each tensor that it makes and keeps for backward, but those that it reads and gives."""
    read: int = 0
    """The bytes of the rows that it reads; 0 for features, which lie there in any case."""
    keeps_read: bool = False
    """Whether backward reads these rows."""
    keeps_made: bool = False
    """Whether backward reads the rows that it gives to the next layer."""
    brought: int = 0
    """The bytes of what other workers send it, which lie there until it runs again: they send once."""


@dataclass(frozen=True)
class LayerChoice:
    """What is done with what a layer keeps."""

    again: bool
    """Whether backward runs it again, from the rows that it reads, and nothing else is kept."""
    read_aside: bool = False
    """Whether these rows are put aside, where they are kept at all."""
    aside: tuple[bool, ...] = ()
    """Which of the tensors that it keeps are put aside; none where it is run again."""


@dataclass(frozen=True)
class WayCost:
    """What a choice for all layers costs."""

    seconds: float
    """More than keeping everything."""
    peak: int
    """The most bytes at one time."""


@dataclass(frozen=True)
class _Front:
    """A choice for the first layers that no other beats in both numbers."""

    bytes: int
    seconds: float
    choices: tuple[LayerChoice, ...] = ()


def cheapest(
    layers: Sequence[LayerNeed], memory: int, aside_seconds: float
) -> tuple[LayerChoice, ...] | None:
    """Return the choice for each layer that costs the least time in so many bytes; None where none fits.

    The last of `layers` is what comes after the model's own, the loss, which is never run again. A byte that
    is put aside and brought back takes `aside_seconds`.
    """
    unit = max(1, memory // _STEPS)
    fronts: dict[bool, list[_Front]] = {True: [_Front(0, 0.0)]}  # before the first layer nothing is given
    for number, layer in enumerate(layers):
        before = layers[number - 1] if number else None
        found: dict[bool, list[_Front]] = {}
        for again in (False, True) if number + 1 < len(layers) else (False,):
            made: list[_Front] = []
            for was_again, front in fronts.items():
                fitting = [each for each in front if each.bytes + layer.room <= memory]
                read = _read_bytes(layer, before, again, was_again)
                made += _chosen(layer, fitting, again, read, unit, aside_seconds)
            found[again] = _best(made)
        fronts = found
    last = [each for front in fronts.values() for each in front]
    return min(last, key=lambda each: (each.seconds, each.bytes)).choices if last else None


def _read_bytes(layer: LayerNeed, before: LayerNeed | None, again: bool, was_again: bool) -> int:
    """Return the bytes that are kept of the rows between two layers, for either of them."""
    for_before = before is not None and before.keeps_made and not was_again
    return layer.read if again or layer.keeps_read or for_before else 0


def _chosen(
    layer: LayerNeed, front: list[_Front], again: bool, read: int, unit: int, aside_seconds: float
) -> Iterable[_Front]:
    """Give what comes of each choice for a layer, after each for those before."""
    sizes = () if again else layer.kept
    stays = -(-layer.brought // unit) * unit if again else 0
    grown: list[_Grown] = [(each.choices, each.bytes + stays, each.seconds, ()) for each in front]
    for size in (read, *sizes):
        rounded = -(-size // unit) * unit
        kept: list[_Grown] = [(c, held + rounded, time, (*flags, False)) for c, held, time, flags in grown]
        moved: list[_Grown] = [
            (c, held, time + size * aside_seconds, (*flags, True)) for c, held, time, flags in grown
        ]
        grown = _undominated(kept + moved if size else kept)
    for choices, held, time, flags in grown:
        choice = LayerChoice(again, flags[0], flags[1:])
        yield _Front(held, time + (layer.seconds if again else 0.0), (*choices, choice))


_Grown = tuple[tuple[LayerChoice, ...], int, float, tuple[bool, ...]]


def _undominated(grown: list[_Grown]) -> list[_Grown]:
    kept: list[_Grown] = []
    for each in sorted(grown, key=lambda one: (one[1], one[2])):
        if not kept or each[2] < kept[-1][2]:
            kept.append(each)
    return kept


def _best(made: list[_Front]) -> list[_Front]:
    kept: list[_Front] = []
    for each in sorted(made, key=lambda one: (one.bytes, one.seconds)):
        if not kept or each.seconds < kept[-1].seconds:
            kept.append(each)
    return kept


def cost_of(layers: Sequence[LayerNeed], choices: Sequence[LayerChoice], aside_seconds: float) -> WayCost:
    """Return what a choice for every layer costs, reckoned from the first to the last."""
    held, peak, seconds = 0, 0, 0.0
    for number, (layer, choice) in enumerate(zip(layers, choices, strict=True)):
        peak = max(peak, held + layer.room)
        before = layers[number - 1] if number else None
        was_again = choices[number - 1].again if number else True
        read = _read_bytes(layer, before, choice.again, was_again)
        sizes = [(read, choice.read_aside)]
        if choice.again:
            seconds += layer.seconds
            held += layer.brought
        else:
            sizes += zip(layer.kept, choice.aside, strict=True)
        for size, aside in sizes:
            held += 0 if aside else size
            seconds += size * aside_seconds if aside else 0.0
    return WayCost(seconds, peak)
