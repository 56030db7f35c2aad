"""The moves of a step, in the order of the strategies."""

import numpy as np
import pytest
from step_games import played, shipment, wires

from weft.simulate.schedule import Arrive, Compute, Depart, Shipment, StepSchedule, StepWork, scheduled

ONE = np.ones(2)


def traffic(kind: str, sums: int = 0) -> Shipment:
    made = shipment(2, [(0, 1, 30.0), (1, 0, 30.0)], joint=sums > 0, sums=max(1, sums), rounds=8)
    return Shipment(kind, made.src, made.dst, made.size, made.preparing, made.joint, made.rounds, made.sums)


def told(step: StepSchedule) -> list[str]:
    words = []
    for move in step.moves:
        if isinstance(move, Compute):
            words.append(f"{move.phase} {move.seconds[0]:g}")
        elif isinstance(move, Depart):
            words.append(f"{step.shipments[move.shipment].kind} departs")
        elif isinstance(move, Arrive):
            words.append(f"{step.shipments[move.shipment].kind} arrives{' late' if move.late else ''}")
    return words


def test_local_edges_are_summed_while_a_layer_travels() -> None:
    up, down = traffic("up"), traffic("down")
    work = StepWork(4 * ONE, 4 * ONE, ONE, 0 * ONE, up=[up], down=[down], local=0.75)
    assert told(scheduled(work)) == [
        *("forward 2", "up departs", "forward 1.5", "up arrives", "forward 0.5"),
        *("down departs", "backward 1.5", "down arrives", "backward 0.5", "backward 2", "other 1"),
    ]


def test_gradients_depart_when_their_layers_are_done() -> None:
    def gradients(sums: int) -> list[str]:
        held = {"up": [traffic("up")], "down": [traffic("down")], "gradients": [traffic("sum", sums)]}
        work = StepWork(ONE, 4 * ONE, ONE, 0 * ONE, **held)  # type: ignore[arg-type]
        return told(scheduled(work))[4:]

    assert gradients(1)[-4:] == ["backward 2", "sum departs", "sum arrives", "other 1"]
    arrives = ["sum arrives", "sum arrives", "other 1"]
    assert gradients(2)[-6:] == ["sum departs", "backward 2", "sum departs", *arrives]


def test_pieces_of_a_sum_are_all_of_it() -> None:
    work = StepWork(ONE, ONE, ONE, 0 * ONE, down=[traffic("down")], gradients=[traffic("sum", 2)])
    pieces = [each for each in scheduled(work).shipments if each.kind == "sum"]
    assert sum(each.size.sum() for each in pieces) == 60.0
    assert [each.rounds for each in pieces] == [4, 4]


def test_batches_are_prepared_beside_the_step_before() -> None:
    held = {"sampling": 2 * ONE, "first": [traffic("features")]}
    beside, alone = (
        scheduled(StepWork(8 * ONE, 0 * ONE, 0 * ONE, ahead=ahead, **held))  # type: ignore[arg-type]
        for ahead in (True, False)
    )
    assert told(beside) == ["features departs", "features arrives late", "forward 8"]
    assert played(alone, wires(2), steps=2).ends == pytest.approx([13.0, 26.0])
    assert played(beside, wires(2), steps=2).ends == pytest.approx([8.0, 16.0])


def test_rows_that_are_a_step_old_are_waited_for_a_step_later() -> None:
    traffic = shipment(2, [(0, 1, 30.0), (1, 0, 30.0)])
    ends = {}
    for late in (False, True):
        work = StepWork(*(np.full(2, each) for each in (4.0, 0.0, 0.0, 0.0)), up=[traffic], late=late)
        ends[late] = played(scheduled(work), wires(2), steps=3).ends
    assert ends[False] == pytest.approx([7.0, 14.0, 21.0])
    assert ends[True] == pytest.approx([4.0, 8.0, 12.0])
