"""Epochs played by the clock, by hand: who is late, what work hides, and cores that are shared."""

from collections.abc import Sequence

import pytest

from weft.plan.clocked_epoch import ClockedEpoch, Leg, LegLane, RankSeconds
from weft.plan.cores import Cores
from weft.plan.rehearse.course import BegunCall, Stretch
from weft.plan.rehearse.work import CountedWork
from weft.plan.travel import Travel
from weft.plan.wires import Wires

PAIR = (0, 1)


def works(seconds: float, phase: str = "forward") -> Leg:
    return Leg(Stretch(CountedWork(), phase=phase), {phase: seconds})


def begins(name: str, seconds: float = 0.0, size: float = 0.0, rank: int = 0) -> Leg:
    call = BegunCall((name,), PAIR, {1 - rank: (size, 1.0)} if size else {})
    return Leg(Stretch(CountedWork(), begins=call, phase="forward"), {"forward": seconds})


def awaits(name: str, seconds: float = 0.0, kind: str = "halo") -> Leg:
    return Leg(Stretch(CountedWork(), awaits=(name,), kind=kind, phase="forward"), {"forward": seconds})


def played(
    *legs: Sequence[Leg], wires: Wires | None = None, cores: int = 8, sharing: int | None = None
) -> list[RankSeconds]:
    links = wires or Wires(len(legs), len(legs), 1e9, 0.0, inside=1e9, inside_latency=0.0)
    lanes = [LegLane(rank, held) for rank, held in enumerate(legs)]
    return ClockedEpoch(lanes, Travel(links), Cores(cores, sharing or len(legs))).run()


def test_the_seconds_of_an_epoch_are_the_sum_of_the_slowest_between_exchanges() -> None:
    first = [begins("a", 1.0), awaits("a"), begins("b", 3.0), awaits("b"), works(1.0)]
    second = [begins("a", 3.0), awaits("a"), begins("b", 1.0), awaits("b"), works(1.0)]
    one, other = played(first, second)  # five seconds of work each, seven by the clock
    assert dict(one.working) == dict(other.working) == {"forward": pytest.approx(5.0)}
    assert one.waiting["forward", "halo"] == pytest.approx(2.0)
    assert other.waiting["forward", "halo"] == pytest.approx(2.0)


def test_a_call_that_work_follows_is_hidden_between_machines_and_not_within_one() -> None:
    def legs(rank: int) -> list[Leg]:
        return [begins("a", 1.0, 2e9, rank), works(1.5), awaits("a")]

    apart = Wires(2, 1, 1e9, 0.0, inside=1e9, inside_latency=0.0)
    assert [each.waiting["forward", "halo"] for each in played(legs(0), legs(1), wires=apart)] == [0.5, 0.5]
    # Within a machine both directions are copied by its memory, one after the other, by the cores that work.
    near = played(legs(0), legs(1))
    assert [each.waiting["forward", "halo"] for each in near] == [pytest.approx(4.0)] * 2


def test_ranks_that_share_a_core_take_turns_while_both_work() -> None:
    one, other = played([works(2.0)], [works(1.0)], cores=1)
    assert (one.working["forward"], other.working["forward"]) == (pytest.approx(3.0), pytest.approx(2.0))
    one, other = played([works(2.0)], [works(1.0)], cores=1, sharing=1)
    assert (one.working["forward"], other.working["forward"]) == (2.0, 1.0)


def test_who_shares_cores_is_another_matter_than_who_shares_a_link() -> None:
    apart = Wires(4, 1, 1e9, 0.0, inside=1e9, inside_latency=0.0)  # a link each, as in namespaces
    found = played(*[[works(1.0)]] * 4, wires=apart, cores=2)
    assert [each.working["forward"] for each in found] == [pytest.approx(2.0)] * 4


def test_who_waits_leaves_the_core_to_who_works() -> None:
    first = [begins("a", 1.0), awaits("a"), works(1.0)]
    second = [begins("a", 3.0), awaits("a"), works(1.0)]
    one, other = played(first, second, cores=1)
    assert one.waiting["forward", "halo"] == pytest.approx(2.0)  # from 2 to 4, when the other has the core
    assert sum(one.working.values()) == pytest.approx(4.0)
    assert sum(other.working.values()) == pytest.approx(6.0)


def test_what_was_begun_in_an_epoch_before_is_not_waited_for() -> None:
    one, _ = played([works(1.0), awaits("before"), works(1.0)], [works(1.0)])
    assert dict(one.waiting) == {}
    assert one.working["forward"] == pytest.approx(2.0)


def test_phases_and_purposes_are_told_apart() -> None:
    mixed = Leg(Stretch(CountedWork(), phase="forward"), {"forward": 1.0, "batches": 3.0})
    one, other = played([mixed, begins("a"), awaits("a", kind="gradient")], [begins("a", 6.0), awaits("a")])
    assert dict(one.working) == {"forward": pytest.approx(1.0), "batches": pytest.approx(3.0)}
    assert dict(one.waiting) == {("forward", "gradient"): pytest.approx(2.0)}
    assert other.waiting["forward", "halo"] == 0.0
