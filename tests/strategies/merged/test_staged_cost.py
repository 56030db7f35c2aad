"""What a plan tries of `staged`: blocks along a square grid only where the workers are a square."""

from weft.strategies.strategy_cost import cost_of


def test_forms_are_those_that_the_workers_allow() -> None:
    assert [[each["form"] for each in cost_of("staged").variants(size)] for size in (2, 4)] == [
        ["1d"],
        ["1d", "2d"],
    ]
