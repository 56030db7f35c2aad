"""What a step does, as a list of moves that all workers make in the same order.

Every worker computes, sends what a shipment has of it, and waits until all that others send it is there. What
a layer sends departs before its local edges are summed and is waited for after; gradients of weights depart
layer by layer while backward goes on, and are waited for before the optimiser; what is late is waited for a
step later.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from weft.simulate.sharing import Rates


@dataclass(frozen=True)
class Shipment:
    """What workers send each other at one point of a step."""

    kind: str
    """The purpose, as the ledger names it."""
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    size: Rates
    """Bytes from each `src` to each `dst`."""
    preparing: Rates
    """[workers] seconds until a worker's messages are on their way."""
    joint: bool = False
    """Whether it is a reduction: none begins before all are there, none has anything before all are done."""
    rounds: int = 1
    """Times that a latency passes one after the other."""
    sums: int = 1
    """Reductions that it is made of, each of which departs when its layer is done."""


@dataclass(frozen=True)
class Compute:
    """Work of each worker, [workers] seconds."""

    seconds: Rates
    phase: str = ""


@dataclass(frozen=True)
class Depart:
    """Send a shipment and go on."""

    shipment: int


@dataclass(frozen=True)
class Arrive:
    """Wait for a shipment of this step, or of the one before where it is `late`."""

    shipment: int
    late: bool = False


Move = Compute | Depart | Arrive


@dataclass
class StepSchedule:
    """The moves of a step, and the shipments that they name by number."""

    workers: int
    moves: list[Move] = field(default_factory=list)
    shipments: list[Shipment] = field(default_factory=list)

    def compute(self, seconds: Rates, phase: str = "") -> None:
        """Add work."""
        if seconds.any():
            self.moves.append(Compute(seconds, phase))

    def depart(self, shipment: Shipment) -> int:
        """Add the departure of a shipment, and return its number."""
        self.shipments.append(shipment)
        self.moves.append(Depart(len(self.shipments) - 1))
        return len(self.shipments) - 1

    def arrive(self, shipment: int, *, late: bool = False) -> None:
        """Add the wait for a shipment."""
        self.moves.append(Arrive(shipment, late))


@dataclass(frozen=True)
class StepWork:
    """What a step has to be made of: work by phase, and traffic by when it is needed."""

    forward: Rates
    backward: Rates
    between: Rates
    """[workers] seconds of all else: optimiser, what a step prepares."""
    sampling: Rates
    """[workers] seconds of drawing batches."""
    first: Sequence[Shipment] = ()
    """Needed before the forward pass: features of a batch, samples."""
    up: Sequence[Shipment] = ()
    """Of the layers of a forward pass, in order."""
    down: Sequence[Shipment] = ()
    """Of the layers of a backward pass, in order."""
    gradients: Sequence[Shipment] = ()
    """Of weights, all together."""
    last: Sequence[Shipment] = ()
    """At the end of a step: votes, norms."""
    local: float = 0.0
    """Share of a layer's work that does not need what travels for it."""
    late: bool = False
    """Whether what layers send is read a step later."""
    ahead: bool = False
    """Whether batches are made while the step before runs."""

    @property
    def training(self) -> Rates:
        """Seconds of work of a step but for drawing."""
        return self.forward + self.backward + self.between


def scheduled(work: StepWork) -> StepSchedule:
    """Return the moves of a step."""
    step = StepSchedule(len(work.forward))
    if work.ahead:  # what the step before prepared; then this one has the next prepared, beside its own work
        numbers = [step.depart(each) for each in work.first]
        for number in numbers:
            step.arrive(number, late=True)
        step.compute(np.maximum(0.0, work.sampling - work.training), "batches")
    else:
        step.compute(work.sampling, "batches")
        _at_once(step, work.first)
    _pass(step, work, work.forward, work.up, "forward")
    waiting = _pass(step, work, work.backward, work.down, "backward", work.gradients)
    for number in waiting:
        step.arrive(number)
    step.compute(work.between, "other")
    _at_once(step, work.last)
    return step


def _at_once(step: StepSchedule, shipments: Sequence[Shipment]) -> None:
    for number in [step.depart(each) for each in shipments]:
        step.arrive(number)


def _pass(
    step: StepSchedule,
    work: StepWork,
    seconds: Rates,
    shipments: Sequence[Shipment],
    phase: str,
    gradients: Sequence[Shipment] = (),
) -> list[int]:
    """Add the layers of a pass: one without traffic, as inputs are constant, and one for each shipment.

    Return the gradients that are under way at its end.
    """
    layers = len(shipments) + 1
    each = seconds / layers
    waiting: list[int] = []
    place = 0

    def let_go() -> None:
        nonlocal place
        place += 1
        for gradient in gradients:
            pieces = min(layers, gradient.sums)
            if place > layers - pieces:
                waiting.append(step.depart(share(gradient, pieces)))

    if phase == "forward":
        step.compute(each, phase)
    for shipment in shipments:
        number = step.depart(shipment)
        step.compute(work.local * each, phase)
        step.arrive(number, late=work.late)
        step.compute((1 - work.local) * each, phase)
        let_go()
    if phase == "backward":
        step.compute(each, phase)
        let_go()
    return waiting


def share(shipment: Shipment, pieces: int) -> Shipment:
    """Return one of so many pieces of a shipment."""
    rounds = max(1, shipment.rounds // pieces)
    preparing = shipment.preparing / pieces
    return replace(shipment, size=shipment.size / pieces, preparing=preparing, rounds=rounds)
