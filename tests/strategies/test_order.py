"""The order in which rows are sent, edges worked on and rows waited for: what hides the network."""

import order_jobs
import pytest
from ranks import run_ranks


@pytest.fixture(scope="module")
def told() -> list[dict[str, list[str]]]:
    """Return the events of three ranks."""
    return run_ranks(3, order_jobs.events)


HALO = (
    ["sent forward", "computed", "waited forward", "computed"],
    ["computed", "sent backward", "computed", "waited backward", "computed"],
)
NEXT_PART = ["waited forward", "sent forward", "computed"]


@pytest.mark.parametrize("name", ["halo", "halo sampled", "halo quantised"])
def test_local_edges_are_worked_on_while_the_halo_travels(
    told: list[dict[str, list[str]]], name: str
) -> None:
    for events in told:
        assert _halves(events[name]) == HALO


def test_the_rows_of_a_part_travel_while_the_part_before_is_worked_on(
    told: list[dict[str, list[str]]],
) -> None:
    forward = ["sent forward", "computed", *NEXT_PART, "waited forward", "computed"]
    for events in told:
        ahead, back = _halves(events["sequential"])
        assert ahead == forward
        # The gradients of the first remote part travel behind own parts, those of a part behind the next.
        sent = [place for place, event in enumerate(back) if event == "sent backward"]
        waited = [place for place, event in enumerate(back) if event == "waited backward"]
        assert back[: sent[0] + 2] == ["computed", "sent backward", "computed"]
        assert sent[1] < waited[0]
        ahead, back = _halves(events["sequential max"])
        assert ahead == forward
        fetched = [event for event in back if event.endswith("forward") or event == "computed"]
        assert fetched[: len(forward) - 1] == forward[:-1], "what is fetched again comes ahead as well"


@pytest.mark.parametrize(("name", "ways"), [("stale", 1), ("delayed", 2)])
def test_what_is_read_later_is_sent_behind_and_waited_for_later(
    told: list[dict[str, list[str]]], name: str, ways: int
) -> None:
    for events in told:
        for direction, half in zip(("forward", "backward"), _halves(events[name])):
            moved = [event for event in half if event != "computed"]
            assert moved == [f"sent {direction} behind", f"waited {direction} behind of before"] * ways


def _halves(events: list[str]) -> tuple[list[str], list[str]]:
    middle = events.index("|")
    return events[:middle], events[middle + 1 :]
