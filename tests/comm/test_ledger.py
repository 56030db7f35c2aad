"""The ledger adds up what a rank sent, waited for and used."""

import json
import time

import pytest

from weft.comm import Label, Ledger


def test_volumes_are_kept_by_label_and_peer() -> None:
    ledger = Ledger()
    forward, backward = Label("halo", 0), Label("halo", 0, "backward")
    ledger.sent(1, 100, forward)
    ledger.sent(1, 50, forward)
    ledger.sent(2, 7, backward, messages=3)
    ledger.received(1, 9, forward)
    assert (ledger.bytes_sent, ledger.messages) == (157, 5)
    assert ledger.volumes[forward, 1].bytes_received == 9
    assert ledger.snapshot()["volumes"][0]["direction"] == "backward"


def test_nothing_sent_is_no_message() -> None:
    ledger = Ledger()
    ledger.sent(1, 0)
    ledger.received(1, 0)
    assert ledger.messages == 0
    assert ledger.snapshot()["volumes"] == []


def test_snapshot_is_json_and_clears_when_asked() -> None:
    ledger = Ledger()
    ledger.sent(1, 8)
    ledger.waited(0.5, 0.25)
    ledger.used(1, rows=4)
    ledger.used(0)
    ledger.decided(True)
    ledger.decided(False)
    taken = json.loads(json.dumps(ledger.snapshot(clear=True)))
    assert (taken["exposed_seconds"], taken["hidden_seconds"]) == (0.5, 0.25)
    assert taken["staleness"] == {"0": 1, "1": 4}
    assert (taken["skipped"], taken["made"]) == (1, 1)
    assert ledger.snapshot()["bytes_sent"] == 0


def test_waits_are_kept_one_by_one_but_not_without_bound() -> None:
    ledger = Ledger()
    before = time.perf_counter()
    for _ in range(1200):
        ledger.waited(0.001, 0.0, Label("halo"))
    ledger.waited(1e-6, 0.5)
    taken = ledger.snapshot(clear=True)
    assert taken["exposed_seconds"] == pytest.approx(1.2, abs=1e-3)
    assert len(taken["waits"]) == 1000
    kind, start, seconds = taken["waits"][0]
    assert (kind, seconds) == ("halo", 0.001)
    assert start >= before - 0.001
    assert ledger.snapshot()["waits"] == []
