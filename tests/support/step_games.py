"""Steps of a few workers on links of 10 bytes a second."""

import numpy as np

from weft.plan.wires import Wires
from weft.simulate.discrete import Play, Played
from weft.simulate.schedule import Shipment, StepSchedule


def wires(workers: int, **options: float) -> Wires:
    told = {"bandwidth": 10.0, "latency": 0.0, "inside": 1e9, "inside_latency": 0.0, **options}
    return Wires(workers, 1, **told)  # type: ignore[arg-type]


def shipment(workers: int, flows: list[tuple[int, int, float]], **options: object) -> Shipment:
    src, dst, size = (np.array(each) for each in zip(*flows))
    return Shipment("halo", src, dst, size.astype(float), np.zeros(workers), **options)  # type: ignore[arg-type]


def played(step: StepSchedule, net: Wires, **options: object) -> Played:
    return Play(step, net, **{"steps": 1, **options}).run()  # type: ignore[arg-type]
