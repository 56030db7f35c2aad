"""Orders of jobs: every stage gets what it waits for, and no more is in flight than is allowed."""

import itertools

import pytest

from weft.strategies.pipeline.division import StageDivision
from weft.strategies.pipeline.schedules import Job, ScheduleName, bubble, jobs_of, version_of


def played(division: StageDivision, schedule: ScheduleName, count: int) -> tuple[int, list[int]]:
    """Play all workers in turns of one unit; return the turns and the most in flight of each worker."""
    left = [jobs_of(schedule, division, rank, count) for rank in range(division.workers)]
    done: set[tuple[int, Job]] = set()
    flying, most = [0] * division.workers, [0] * division.workers
    turns, last = 0, division.num_stages - 1

    def ready(rank: int, job: Job) -> bool:
        stage, _ = division.place(rank)
        if job.kind == "forward":
            return stage == 0 or (division.holder(stage - 1, job.number), job) in done
        if job.kind == "backward":
            return stage == last or (division.holder(stage + 1, job.number), job) in done
        return all(left[each] and left[each][0] == job for each in division.ranks(stage))  # all together

    while any(left):
        able = [rank for rank, jobs in enumerate(left) if jobs and ready(rank, jobs[0])]
        assert able, f"{division}: everybody waits, {[jobs[:1] for jobs in left]}"
        taken = [(rank, left[rank].pop(0)) for rank in able]
        turns += any(job.kind != "update" for _, job in taken)
        for rank, job in taken:
            done.add((rank, job))
            flying[rank] += {"forward": 1, "backward": -1, "update": 0}[job.kind]
            most[rank] = max(most[rank], flying[rank])
    assert not any(flying)
    return turns, most


@pytest.mark.parametrize("replicas", [r for n in (1, 2, 3) for r in itertools.product((1, 2, 3), repeat=n)])
def test_no_division_waits_for_itself(replicas: tuple[int, ...]) -> None:
    division = StageDivision((1,) * len(replicas), replicas)
    for schedule, count in itertools.product(("gpipe", "1f1b"), (1, 2, 5, 13)):
        _, most = played(division, schedule, count)  # type: ignore[arg-type]
        if schedule == "1f1b":
            limits = [division.depths[division.place(rank)[0]] for rank in range(division.workers)]
            assert all(found <= limit for found, limit in zip(most, limits))


def test_stages_without_replicas_have_as_many_in_flight_as_are_behind() -> None:
    division = StageDivision((1,) * 4, (1,) * 4)
    assert division.depths == (4, 3, 2, 1)
    assert played(division, "1f1b", 9)[1] == [4, 3, 2, 1]
    assert played(division, "gpipe", 9)[1] == [9] * 4


@pytest.mark.parametrize(("stages", "count"), [(2, 4), (3, 6), (4, 8)])
def test_a_flush_takes_the_turns_of_the_formula(stages: int, count: int) -> None:
    turns, _ = played(StageDivision((1,) * stages, (1,) * stages), "gpipe", count)
    assert turns == 2 * (count + stages - 1)
    assert bubble(stages, count) == pytest.approx(1 - 2 * count / turns)


def test_versions_are_those_of_updates_that_were_made() -> None:
    division = StageDivision((1, 1, 1), (1, 2, 1))
    for rank in range(division.workers):
        stage, _ = division.place(rank)
        updates = 0
        for kind, number in jobs_of("1f1b", division, rank, 11):
            updates += kind == "update"
            assert kind != "forward" or version_of(division, stage, number) == updates


def test_a_worker_without_a_batch_in_the_last_round_updates_all_the_same() -> None:
    division = StageDivision((1,), (2,))
    updates = [[job for job in jobs_of("1f1b", division, rank, 3) if job.kind == "update"] for rank in (0, 1)]
    assert updates[0] == updates[1] == [Job("update", 0), Job("update", 1)]
