"""Traffic is added up by purpose, pair of ranks and epoch, whatever state the events are in."""

from __future__ import annotations

import pytest

from weft.report.traffic import Key, read_traffic

from . import samples


def test_figures_of_an_epoch_leave_out_what_the_first_one_sent_once() -> None:
    held = read_traffic(samples.traffic(4, workers=2))
    assert held is not None
    assert held.ranks == [0, 1]
    flow = held.flows[Key("halo", 0, "forward")]
    assert (flow.bytes_sent, flow.messages) == (2 * 1000, 2)
    assert (flow.exposed, flow.hidden) == pytest.approx((0.002, 0.001))
    assert held.once == {"features": 2 * 4096}
    assert held.total.bytes_sent == 2 * (1000 + 1000 + 300)
    assert held.evaluation.bytes_sent == 2 * 300
    assert held.training.bytes_sent == 2 * 2000
    assert held.links == [[0, 2300], [2300, 0]]
    assert held.of_rank(1).bytes_sent == 2300
    assert held.memory(1) == 2 * 2**20


def test_of_doubled_records_the_last_counts() -> None:
    events = samples.traffic(2, workers=2)
    doubled = [*events, {**events[-1], "volumes": []}]
    held = read_traffic(doubled)
    assert held is not None
    assert len(held.records) == 4
    assert held.total.bytes_sent == 2300


def test_names_are_those_of_people() -> None:
    assert Key("halo", 1, "backward").name == "halo gradients 2"
    assert Key("evaluate", 0, "forward").name == "evaluation rows 1"
    assert Key("evaluate", -1, "forward").name == "evaluation"
    assert Key("partial", -1, "backward").name == "partial, backward"
    assert Key("broadcast", 0, "backward").name == "merged gradients 1"
    assert Key("decision", 0, "forward").name == "decisions to skip 1"
    assert Key("drift", 1, "forward").name == "drift measured 2"
    assert Key("features", -1, "forward").order < Key("gradient", -1, "backward").order


def test_events_of_earlier_versions_are_read() -> None:
    events = samples.traffic(2, workers=2)
    for row in (row for event in events for row in (*event["volumes"], *event["seconds"])):
        row["layer"] = row.pop("slot")
    held = read_traffic(events)
    assert held is not None
    assert Key("halo", 0, "forward") in held.flows


def test_three_typical_epochs_in_a_row_are_found() -> None:
    held = read_traffic(samples.traffic(30, workers=3))
    assert held is not None
    assert held.window() == [18, 19, 20]
    assert held.duration(18) == pytest.approx(0.12)
    first = read_traffic(samples.traffic(1, workers=2))
    assert first is not None
    assert first.window() == [1]


def test_share_skipped_and_ages_are_summed() -> None:
    events = samples.traffic(2, workers=2)
    for event in events:
        event |= {"staleness": {"0": 1, "1": 3, "x": 4}, "skipped": 3, "made": 1}
    held = read_traffic(events)
    assert held is not None
    assert held.staleness == {0: 4, 1: 12}
    assert held.skipped == 0.75
    plain = read_traffic(samples.traffic(1, workers=2))
    assert plain is not None
    assert plain.skipped is None


@pytest.mark.parametrize(
    "event",
    [
        {"event": "traffic"},
        {"event": "traffic", "epoch": "NaN", "rank": 0},
        {"event": "epoch", "epoch": 1, "rank": 0},
    ],
)
def test_events_that_tell_nothing_are_left_out(event: dict[str, object]) -> None:
    assert read_traffic([event]) is None


def test_damaged_fields_count_as_nothing() -> None:
    event = {"event": "traffic", "epoch": 1, "rank": 0, "volumes": [3, {"kind": None, "bytes_sent": "x"}]}
    event |= {"seconds": {}, "staleness": [], "timeline": [1], "seconds_of_phases": 3}
    held = read_traffic([event])
    assert held is not None
    assert held.total.bytes_sent == 0
    assert held.window() == []
