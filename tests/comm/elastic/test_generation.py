"""Who holds which part: about as many each, and as few moved as can be."""

from collections import Counter

from weft.comm.elastic.generation import dealt


def holders(deal: list[int], members: list[int]) -> dict[int, int]:
    return {part: members[place] for part, place in enumerate(deal)}


def test_parts_stay_where_they_can() -> None:
    first = holders(dealt(8, [0, 1], {}), [0, 1])
    assert Counter(first.values()) == {0: 4, 1: 4}
    more = holders(dealt(8, [0, 1, 2], first), [0, 1, 2])
    assert sorted(Counter(more.values()).values()) == [2, 3, 3]
    assert sum(first[part] != more[part] for part in first) == 2
    fewer = holders(dealt(8, [1, 2], more), [1, 2])
    assert Counter(fewer.values()) == {1: 4, 2: 4}
    assert all(fewer[part] == more[part] for part in more if more[part] != 0)


def test_every_worker_holds_a_part() -> None:
    before: dict[int, int] = {}
    for members in ([3], [3, 4, 5, 6], [4, 9], [9, 10, 11], [12, 13, 14, 15]):
        deal = dealt(4, members, before)
        assert set(deal) == set(range(len(members)))
        before = holders(deal, members)
