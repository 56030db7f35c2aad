"""Flows that share links, by hand."""

import numpy as np

from weft.simulate.sharing import fair_rates

FREE = 9


def rates(paths: list[list[int]], capacity: dict[int, float], rounds: int | None = None) -> list[float]:
    limits = np.full(FREE + 1, np.inf)
    for link, each in capacity.items():
        limits[link] = each
    return fair_rates(np.array(paths), limits, rounds).tolist()


def test_two_flows_share_a_link_evenly() -> None:
    assert rates([[0, 1], [0, 2]], {0: 10.0, 1: 100.0, 2: 100.0}) == [5.0, 5.0]


def test_what_one_cannot_use_the_other_takes() -> None:
    assert rates([[0, 1], [0, 2]], {0: 10.0, 1: 2.0, 2: 100.0}) == [2.0, 8.0]


def test_three_links_in_a_row() -> None:
    # The long flow gets a third of the first link; the short ones on the others take what is left there.
    paths = [[0, 1], [0, FREE], [0, FREE], [1, FREE]]
    assert rates(paths, {0: 9.0, 1: 10.0}) == [3.0, 3.0, 3.0, 7.0]


def test_no_link_carries_more_than_it_can_and_every_flow_has_a_full_one() -> None:
    generator = np.random.default_rng(0)
    paths, capacity = generator.integers(0, 40, (300, 3)), generator.uniform(1, 9, 40)
    paths = np.array([np.unique(each)[[0, len(np.unique(each)) // 2, -1]] for each in paths])
    distinct = [np.unique(each) for each in paths]
    wide = np.array([np.pad(each, (0, 3 - len(each)), constant_values=40) for each in distinct])
    found = fair_rates(wide, np.append(capacity, np.inf))
    load = np.bincount(wide.ravel(), weights=np.repeat(found, 3), minlength=41)[:40]
    assert (load <= capacity * (1 + 1e-9)).all()
    full = load >= capacity * (1 - 1e-6)
    assert all(full[each].any() for each in distinct)


def test_a_bound_on_rounds_never_gives_more_than_a_link_has() -> None:
    paths = [[0, 1], [1, 2], [2, 3], [3, FREE]]
    some, all_of = (rates(paths, {0: 1.0, 1: 3.0, 2: 9.0, 3: 40.0}, rounds) for rounds in (1, None))
    assert all_of == [1.0, 2.0, 7.0, 33.0]
    assert all(low <= high for low, high in zip(some, all_of))
