"""Fanouts as a recipe has them: one number, one a hop, or one a hop for each relation."""

import pytest

from weft.errors import RecipeError
from weft.strategies.minibatch.fanouts import by_hop, check_fanouts, usual_fanouts

WRITES, CITES, HOLDS = ("author", "writes", "paper"), ("paper", "cites", "paper"), ("venue", "cites", "paper")


def test_the_usual_fanouts_fall_and_stay() -> None:
    assert [usual_fanouts(hops) for hops in (0, 1, 3, 5)] == [[], [15], [15, 10, 5], [15, 10, 5, 5, 5]]


def test_relations_are_named_in_full_or_by_a_word_that_no_other_has() -> None:
    given = {"writes": [3, 0], "paper cites paper": [2, 1], "venue cites paper": [-1, 4]}
    assert by_hop(given, [WRITES, CITES, HOLDS], "strategy.fanout") == [
        {WRITES: 3, CITES: 2, HOLDS: -1},
        {WRITES: 0, CITES: 1, HOLDS: 4},
    ]
    assert by_hop([3, 2], [WRITES], "strategy.fanout") == [3, 2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"writes": [1], "cites": [1]},
            "no relation 'cites'; the graph has: author writes paper, paper cites",
        ),
        ({"writes": [1]}, "no fanout for 'paper cites paper'; zeros leave a relation out"),
    ],
)
def test_a_relation_that_is_not_there_or_left_out_is_named(given: dict[str, list[int]], said: str) -> None:
    with pytest.raises(RecipeError, match=f"strategy.fanout: {said}"):
        by_hop(given, [WRITES, CITES, HOLDS], "strategy.fanout")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([3, -2], "a fanout is a number of edges, or -1 for all; got -2"),
        ([3, True], "got True"),
        ([3, 1.5], "got 1.5"),
        ({"writes": 3}, "expected a list, one fanout a hop, for 'writes'; got 3"),
        ({"writes": "33"}, "expected a list"),
        ({"writes": [3], "cites": [3, 2]}, "expected as many fanouts for each relation"),
        ({"writes": []}, "expected as many fanouts for each relation"),
        ({"writes": ["3"]}, "writes: a fanout is a number of edges"),
    ],
)
def test_what_can_be_no_fanout_is_refused(given: object, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        check_fanouts(given, "strategy.fanout")


def test_what_can_be_one_is_taken() -> None:
    for given in ([3, -1, 0], {"writes": [3, 2], "cites": [1, 0]}, 5):
        check_fanouts(given, "strategy.fanout")
