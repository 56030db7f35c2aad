"""What a plan tries of `halo`: every exchange that it allows, on more than one worker."""

from weft.strategies.halo.halo import Halo
from weft.strategies.strategy_cost import cost_of


def test_every_exchange_is_tried_on_workers_and_one_process_is_left_to_single() -> None:
    found = cost_of("halo").variants(2)
    assert [each["exchange"] for each in found] == list(Halo.exchanges)
    assert "single" in (cost_of("halo").obstacle(1) or "")
    assert cost_of("halo").obstacle(2) is None


def test_all_repeats_itself_once_the_exchange_and_the_measuring_do() -> None:
    assert cost_of("halo").period({"exchange": "skip", "drift": 6}) == 12
    assert cost_of("halo").period({"exchange": {"name": "skip", "interval": 5, "age": 2}, "drift": True}) == 3
    assert cost_of("halo").period({"exchange": {"name": "skip", "change": 0.1}}) == 1
