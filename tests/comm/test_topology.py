"""Parts go where links are fast: the busiest link ends first, and no deal is below the bound."""

from itertools import permutations

import numpy as np
import pytest

from weft.comm.topology import Behind, LinkMap, best_deal, folded, least_seconds

# Two pairs that talk much among themselves.
ROWS = np.array([[0.0, 100, 10, 10], [100, 0, 10, 10], [10, 10, 0, 100], [10, 10, 100, 0]])


def speeds(size: int = 4, **slow: float) -> np.ndarray:
    speed = np.full((size, size), 1e9)
    for pair, value in slow.items():
        one, other = int(pair[1]), int(pair[2])
        speed[one, other] = speed[other, one] = value
    return speed


def two_machines(speed: float = 10.0) -> LinkMap:
    """Return four workers on two machines, whose links out and in all of a machine share."""
    paths = np.full((4, 4, 2), -1)
    for here in range(4):
        for there in range(4):
            if here // 2 != there // 2:
                paths[here, there] = here // 2, 2 + there // 2
    names = ("machine 0 out", "machine 1 out", "machine 0 in", "machine 1 in")
    return LinkMap(names, np.full(4, speed), paths, (Behind((0, 1), speed), Behind((2, 3), speed)))


def drawn(seed: int, parts: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    traffic = generator.integers(0, 100, (parts, parts)) * (generator.random((parts, parts)) < 0.5)
    return traffic.astype(np.float64)


def every_cost(traffic: np.ndarray, links: LinkMap, usual: list[int]) -> list[float]:
    """Return the seconds of the busiest link under every deal, without the code that is tested."""
    found = []
    for deal in set(permutations(usual)):
        load = np.zeros(len(links.names))
        for one, here in enumerate(deal):
            for other, there in enumerate(deal):
                for link in links.paths[here, there]:
                    if here != there and link >= 0:
                        load[link] += traffic[one, other]
        found.append(float((load / links.bandwidth).max()))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_few_parts_are_dealt_as_well_as_can_be_and_the_bound_is_below(seed: int) -> None:
    usual = [0, 0, 1, 2, 2, 3]
    generator = np.random.default_rng(seed)
    for links in (two_machines(), LinkMap.of_pairs(generator.uniform(1, 10, (4, 4)))):
        traffic = drawn(seed, 6)
        costs = every_cost(traffic, links, usual)
        deal = best_deal(traffic, links, usual)
        assert sorted(deal) == usual
        found = links.cost(folded(traffic, deal, 4))[0]
        assert found == pytest.approx(min(costs))
        assert found < max(costs)
        assert 0 < least_seconds(traffic, links, usual) <= min(costs) * (1 + 1e-12)


def test_exchanges_of_two_come_near_the_best_of_all_deals() -> None:
    usual, over = [0, 0, 1, 1, 2, 2, 3, 3], []
    for seed in range(3):
        traffic, links = drawn(seed, 8), two_machines()
        deal = best_deal(traffic, links, usual)
        assert sorted(deal) == usual
        over.append(links.cost(folded(traffic, deal, 4))[0] / min(every_cost(traffic, links, usual)))
    assert max(over) <= 1.05
    assert over.count(pytest.approx(1.0)) >= 2


def test_the_sparsest_way_is_the_bound_where_one_link_is_all_there_is() -> None:
    links = two_machines(speed=1.0)
    # Half of both ways, as each machine's link is one way: 4 x 10 rows cross it in any deal of the pairs.
    assert least_seconds(ROWS, links, [0, 1, 2, 3]) == 40.0
    assert links.cost(folded(ROWS, best_deal(ROWS, links, [0, 2, 1, 3]), 4))[0] == 40.0
    assert links.cost(folded(ROWS, [0, 2, 1, 3], 4))[0] == 220.0


def test_many_parts_have_a_bound_by_the_eigenvalue_of_their_graph() -> None:
    traffic, links = drawn(5, 24), two_machines()
    usual = [part // 6 for part in range(24)]  # 2,704,156 choices are too many to look at
    bound = least_seconds(traffic, links, usual)
    assert 0 < bound <= links.cost(folded(traffic, best_deal(traffic, links, usual), 4))[0]


def test_what_is_sent_whoever_holds_what_counts() -> None:
    speed = speeds()
    links, usual = LinkMap.of_pairs(speed), [0, 1, 2, 3]
    fixed = np.zeros((4, 4))
    fixed[0, 1] = fixed[1, 0] = 1000.0  # a link that is full: those who talk little should stand at it
    deal = best_deal(ROWS, links, usual, fixed=fixed)
    assert ROWS[deal.index(0), deal.index(1)] == 10
    assert best_deal(ROWS, links, usual) == usual


def test_the_slow_link_gets_those_who_talk_little() -> None:
    deal = best_deal(ROWS, LinkMap.of_pairs(speeds(_01=1e7)), [0, 1, 2, 3], worth=0.9)
    assert ROWS[deal.index(0), deal.index(1)] == 10
    assert sorted(deal) == [0, 1, 2, 3]


def test_nothing_moves_where_links_are_about_equal() -> None:
    noise = np.random.default_rng(0).uniform(0.97, 1.03, (4, 4))
    assert best_deal(ROWS, LinkMap.of_pairs(speeds() * noise), [0, 1, 2, 3], worth=0.9) == [0, 1, 2, 3]


def test_many_workers_are_dealt_to_by_exchanges_of_two() -> None:
    rows = np.kron(np.eye(5), np.array([[0.0, 100], [100, 0]])) + 1
    deal = best_deal(rows, LinkMap.of_pairs(speeds(10, _01=1e6)), list(range(10)))
    assert sorted(deal) == list(range(10))
    assert rows[deal.index(0), deal.index(1)] == 1


def test_one_worker_has_no_links() -> None:
    links = LinkMap.of_pairs(np.full((1, 1), np.inf))
    assert best_deal(ROWS, links, [0] * 4) == [0] * 4
    assert least_seconds(ROWS, links, [0] * 4) == 0.0
