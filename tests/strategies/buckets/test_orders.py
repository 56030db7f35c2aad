"""Every order visits each bucket once, in spaces that are joined, with no more swaps than it should."""

from itertools import chain, pairwise

import pytest

from weft.strategies.buckets.orders import ORDERS, Visit, epoch_rounds, oracle, swaps

NAMES = [*ORDERS, "rounds"]


def visits_of(order: str, partitions: int, buffer: int = 2, **when: int) -> list[Visit]:
    return [visit for part in epoch_rounds(order, partitions, buffer, **when) for visit in part]  # type: ignore[arg-type]


def num_swaps(visits: list[Visit], buffer: int) -> int:
    """Return how many partitions are read after the buffer was filled."""
    held = [visit.partitions for visit in visits]
    return sum(len(loaded) for loaded, _ in swaps(held, buffer)) - min(buffer, len({*chain(*held)}))


@pytest.mark.parametrize("order", NAMES)
@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("epoch", [0, 1])
def test_each_bucket_is_trained_once_with_its_partitions_in_memory(
    order: str, partitions: int, epoch: int
) -> None:
    visits = visits_of(order, partitions, min(3, max(2, partitions)), epoch=epoch, seed=5)
    buckets = [bucket for visit in visits for bucket in visit.buckets]
    assert sorted(buckets) == [(a, b) for a in range(partitions) for b in range(partitions)]
    assert all({*bucket} <= {*visit.partitions} for visit in visits for bucket in visit.buckets)


@pytest.mark.parametrize("order", NAMES)
@pytest.mark.parametrize("partitions", [2, 3, 5, 8])
def test_each_bucket_after_the_first_has_a_partition_that_was_trained(order: str, partitions: int) -> None:
    seen: set[int] = set()
    for visits in epoch_rounds(order, partitions, 2, seed=3):  # type: ignore[arg-type]
        known = {*seen}
        for visit in visits:
            within = {*known}  # what other workers train in this round is not known here
            for bucket in visit.buckets:
                assert within & {*bucket} or not within
                within |= {*bucket}
            seen |= within


@pytest.mark.parametrize(("partitions", "buffer"), [(4, 2), (6, 3), (8, 2), (8, 4), (9, 4), (16, 4), (16, 8)])
def test_buffered_meets_the_oracle(partitions: int, buffer: int) -> None:
    assert num_swaps(visits_of("buffered", partitions, buffer), buffer) == oracle(partitions, buffer)
    least = -(-(partitions * (partitions - 1) - buffer * (buffer - 1)) // (2 * (buffer - 1)))
    assert (
        least
        <= oracle(partitions, buffer)
        <= min(num_swaps(visits_of(name, partitions, buffer), buffer) for name in ("random", "rounds"))
    )


def test_the_oracle_has_its_published_values() -> None:
    assert [oracle(4, 2), oracle(6, 3), oracle(3, 3), oracle(2, 4)] == [5, 7, 0, 0]


@pytest.mark.parametrize("order", ["inside_out", "outside_in", "chained", "buffered"])
def test_one_partition_at_most_is_swapped_for_the_next_visit_of_two(order: str) -> None:
    visits = visits_of(order, 7)
    assert all({*a.partitions} & {*b.partitions} for a, b in pairwise(visits))
    assert num_swaps(visits, 2) <= len(visits) - 1


@pytest.mark.parametrize("partitions", [4, 5, 8])
def test_visits_of_a_round_have_no_partition_in_common(partitions: int) -> None:
    for epoch in (0, 1, 2):
        for visits in epoch_rounds("rounds", partitions, 2, seed=1, epoch=epoch):
            held = [one for visit in visits for one in visit.partitions]
            assert len(held) == len({*held})
    later = epoch_rounds("rounds", 8, 2, seed=1, epoch=1)
    assert [len(visits) for visits in later] == [4] * 7


def test_draws_depend_on_seed_and_epoch_alone() -> None:
    for order in ("random", "rounds"):
        assert visits_of(order, 8, seed=1, epoch=1) == visits_of(order, 8, seed=1, epoch=1)
        assert visits_of(order, 8, seed=1, epoch=1) != visits_of(order, 8, seed=1, epoch=2)
        assert visits_of(order, 8, seed=1, epoch=1) != visits_of(order, 8, seed=2, epoch=1)


def test_who_is_needed_last_goes_first() -> None:
    assert swaps([(0, 1), (0, 2), (1, 2)], 2) == [([0, 1], []), ([2], [1]), ([1], [0])]
    assert swaps([(0, 1), (2, 1), (0, 2)], 3, held=[2]) == [([0, 1], []), ([], []), ([], [])]


@pytest.mark.parametrize("order", [*ORDERS])
def test_a_partition_in_common_has_a_bucket_with_each_other(order: str) -> None:
    visits = visits_of(order, 4, 2, common=4)
    buckets = [bucket for visit in visits for bucket in visit.buckets]
    assert sorted(buckets) == [(a, b) for a in range(5) for b in range(5)]
    assert all({*bucket} <= {*visit.partitions} for visit in visits for bucket in visit.buckets)
    assert num_swaps(visits, 3) == num_swaps(visits_of(order, 4, 2), 2)
