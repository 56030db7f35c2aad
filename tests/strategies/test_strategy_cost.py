"""What costs share, and what follows from the class of a strategy alone."""

from weft.strategies.base import strategies
from weft.strategies.halo.halo import Halo
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


def test_the_cost_of_a_strategy_stands_in_its_file_or_follows_from_its_class() -> None:
    for name in costs.names():
        assert costs[name].__module__ == strategies[name].__module__
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


def test_records_are_not_tried_without_their_files() -> None:
    assert "weft flatten" in (cost_of("records").obstacle(1) or "")


def test_a_pipeline_is_not_planned_before_its_layers_are_timed() -> None:
    assert "run itself measures" in (cost_of("pipeline").obstacle(2) or "")


def test_forms_of_staged_are_those_that_the_workers_allow() -> None:
    assert [[each["form"] for each in cost_of("staged").variants(size)] for size in (2, 4)] == [
        ["1d"],
        ["1d", "2d"],
    ]


def test_buckets_are_not_compared_with_models_of_layers() -> None:
    assert "no layers" in (cost_of("buckets").obstacle(2) or "")


def test_every_exchange_of_halo_is_tried_on_workers_and_one_process_is_left_to_single() -> None:
    found = cost_of("halo").variants(2)
    assert [each["exchange"] for each in found] == list(Halo.exchanges)
    assert "single" in (cost_of("halo").obstacle(1) or "")
    assert cost_of("halo").obstacle(2) is None


def test_all_of_halo_repeats_itself_once_the_exchange_and_the_measuring_do() -> None:
    assert cost_of("halo").period({"exchange": "skip", "drift": 6}) == 12
    assert cost_of("halo").period({"exchange": {"name": "skip", "interval": 5, "age": 2}, "drift": True}) == 3
    assert cost_of("halo").period({"exchange": {"name": "skip", "change": 0.1}}) == 1


def test_a_plan_does_not_try_what_the_clock_decides() -> None:
    cost = cost_of("asynchronous")
    assert "slow now and then" in (cost.obstacle(2) or "")
    assert cost.is_exact({"intervals": 3})
    assert not cost.is_exact({"staleness": 1})
    assert not cost.is_exact({"form": "free"})


def test_two_parts_for_each_worker_are_tried_of_sequential() -> None:
    assert {each["parts"] for each in cost_of("sequential").variants(3)} == {6}
