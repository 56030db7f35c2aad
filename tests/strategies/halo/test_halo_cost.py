"""What a plan tries of `halo`: every exchange that it allows, on more than one worker."""

from weft.strategies.halo.halo import Halo
from weft.strategies.strategy_cost import costs


def test_every_exchange_is_tried_on_workers_and_one_process_is_left_to_single() -> None:
    found = costs["halo"].variants(Halo, 2)
    assert [each["exchange"] for each in found] == list(Halo.exchanges)
    assert "single" in (costs["halo"].obstacle({}, 1) or "")
    assert costs["halo"].obstacle({}, 2) is None
