"""What costs share, and what follows from the class of a strategy alone."""

from weft.strategies.base import strategies
from weft.strategies.strategy_cost import StrategyCost, cost_of, costs, known_options


def test_options_of_other_strategies_are_left_out() -> None:
    section = {"name": "sampled", "fanout": [2], "parts": 4}
    assert known_options(strategies["halo"], section) == {"parts": 4}


def test_a_rehearsal_sees_a_whole_period_of_an_exchange() -> None:
    cost = StrategyCost(strategies["vertex_cut"])
    assert cost.rehearsed({}) == 2
    assert cost.rehearsed({"exchange": "exact"}) == 2
    assert cost.rehearsed({"exchange": {"name": "delayed", "r": 3}}) == 4
    assert cost.rehearsed({"exchange": "delayed"}) == 6  # by its default, five epochs
    assert cost.rehearsed({"exchange": "skip"}) == 5


def test_the_cost_of_a_strategy_stands_beside_it_or_follows_from_its_class() -> None:
    for name in costs.names():
        assert costs[name].__module__.rpartition(".")[0] == strategies[name].__module__.rpartition(".")[0]
        assert type(cost_of(name)) is costs[name]
    assert type(cost_of("single")) is StrategyCost


def test_single_is_tried_in_one_process_alone() -> None:
    single = cost_of("single")
    assert single.variants(1) == [{}]
    assert single.variants(2) == []
    assert single.obstacle(1) is None
    assert single.is_exact({})


def test_one_process_is_left_to_single_by_what_is_exact_on_workers() -> None:
    assert "single" in (cost_of("grid").obstacle(1) or "")
    assert cost_of("grid").obstacle(2) is None
    assert cost_of("sampled").obstacle(1) is None


def test_every_arrangement_of_a_grid_is_tried() -> None:
    found = {(each["rows"], each["columns"]) for each in cost_of("grid").variants(4)}
    assert found == {(4, 1), (2, 2), (1, 4)}


def test_no_exchange_at_all_is_not_exact() -> None:
    cost = cost_of("vertex_cut")
    assert cost.is_exact({"exchange": {"name": "delayed", "r": 0}})
    assert not cost.is_exact({"exchange": "none"})


def test_batches_are_tried_and_not_exact() -> None:
    assert cost_of("clustered").variants(2) == [{}]
    assert not cost_of("clustered").is_exact({})
