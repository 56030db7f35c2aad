"""A few epochs of a run are kept in detail: what was done when, and when others were waited for."""

import time

from weft.train.saved.timeline import Timeline


def test_phases_and_waits_are_placed_after_the_beginning_of_the_epoch() -> None:
    timeline = Timeline(10)
    before = time.perf_counter()
    timeline.begin()
    timeline({"event": "phase", "name": "forward", "start": 7.0, "seconds": 0.0})
    timeline({"event": "epoch", "epoch": 1})
    now = time.perf_counter()
    held = timeline.take(1, [("control", before - 1, 0.5), ("halo", now, 0.25)])["timeline"]
    assert [phase[0] for phase in held["phases"]] == ["forward"]
    (wait,) = held["waits"]  # what was waited for before the epoch belongs to the one before
    assert wait[0] == "halo"
    assert 0 <= wait[1] < 10
    assert wait[2] == 0.25


def test_epochs_are_kept_three_in_a_row_a_few_times_in_a_run() -> None:
    timeline = Timeline(1000)
    kept = [epoch for epoch in range(1, 1001) if timeline.due(epoch)]
    assert kept[:5] == [1, 2, 200, 201, 202]
    assert len(kept) == 15
    assert timeline.take(5, []) == {}
    assert all(Timeline(2).due(epoch) for epoch in (1, 2))
