"""Who is given which visit: partitions are one worker's at a time, and rows stay in one space."""

import json
from typing import Any

from weft.draw import draw
from weft.strategies.buckets.lock_table import Done, Handed, choose
from weft.strategies.buckets.orders import Visit, epoch_rounds


def visits_of(partitions: int) -> list[Visit]:
    return [visit for each in epoch_rounds("random", partitions, 2, seed=3) for visit in each]


def played(workers: int, partitions: int, seen: set[int]) -> tuple[Handed, list[Visit], int]:
    """Play an epoch in which workers of unequal speed ask and finish by chance; return what was given."""
    visits, handed, most = visits_of(partitions), Handed(), 0
    trained, mine = set(seen), dict.fromkeys(range(workers), -1)
    for turn in range(10_000):
        rank = int(draw(9, turn, 0)) % workers
        if mine[rank] >= 0:
            trained.update(visits[mine[rank]].partitions)
            handed.done.append(Done(mine[rank], 0, 0.0))
            mine[rank] = -1
        elif (found := choose(handed, visits, seen, rank=rank, held=())) is not None:
            first = not handed.taken and not seen
            assert first or trained.intersection(visits[found].partitions)
            handed.taken.append((found, rank))
            mine[rank] = found
            here = [one for number in mine.values() if number >= 0 for one in visits[number].partitions]
            assert len(here) == len({*here}), "two workers have one partition"
            most = max(most, len(here) // 2)
    return handed, visits, most


def test_every_visit_is_taken_once_and_no_partition_twice_at_a_time() -> None:
    for seen in (set[int](), {*range(8)}):
        handed, visits, most = played(3, 8, seen)
        assert sorted(visit for visit, _ in handed.taken) == [*range(len(visits))]
        assert len(handed.done) == len(visits)
        assert most == 3


def test_at_first_others_wait_for_the_first_visit() -> None:
    visits, handed = visits_of(6), Handed()
    first = choose(handed, visits, (), rank=0, held=())
    assert first is not None
    handed.taken.append((first, 0))
    assert choose(handed, visits, (), rank=1, held=()) is None
    handed.done.append(Done(first, 0, 0.0))
    second = choose(handed, visits, (), rank=1, held=())
    assert second is not None
    assert {*visits[second].partitions} & {*visits[first].partitions}


def test_a_worker_is_rather_given_what_it_has() -> None:
    visits = [Visit((0, 1), ()), Visit((2, 3), ()), Visit((3, 4), ())]
    seen = range(5)
    assert choose(Handed(), visits, seen, rank=0, held=()) == 0
    assert choose(Handed(), visits, seen, rank=0, held=(4,)) == 2
    assert choose(Handed(), visits, seen, rank=0, held=(2, 4, 3)) == 1


def test_own_partitions_are_free_and_those_of_others_are_not() -> None:
    visits = [Visit((0, 1), ()), Visit((1, 2), ())]
    handed = Handed([(0, 0)])
    assert choose(handed, visits, (0, 1, 2), rank=0, held=(0, 1)) == 1
    assert choose(handed, visits, (0, 1, 2), rank=1, held=()) is None
    assert choose(handed, visits, (), rank=0, held=(0, 1)) == 1, "it has trained them itself"


def test_ages_count_what_ended_between() -> None:
    handed = Handed([(0, 0), (1, 1), (2, 0)], [Done(0, 0, 0.5), Done(1, 0, 0.0), Done(2, 1, 0.0)])
    assert handed.ages() == [0, 1, 1]
    again: Any = Handed.of(json.loads(json.dumps(handed.told())))
    assert (again.taken, again.done) == (handed.taken, handed.done)
