"""Calls of parts that several processes hold: each gives what ranks give, and a failure ends them."""

from collections.abc import Callable
from typing import Any

import hub_jobs
import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

from weft.comm.elastic import hub as hub_module
from weft.comm.elastic.hub import Hub, PartWire
from weft.comm.run_store import RunStore


def test_calls_give_the_same_bits_whoever_holds_the_parts_and_end_together() -> None:
    held = run_ranks(3, hub_jobs.every)
    by_deal = [{part: told for rank in held for part, told in rank[number].items()} for number in range(5)]
    together = by_deal[0]
    assert by_deal[1] == by_deal[2] == together
    moved, summed, least, spread, behind, words, pair, letters = together[0]
    assert moved == [[0.0], [20.0], [21.0]]
    ordered = torch.tensor([0.1, -1e8]) + torch.tensor([0.3, 0.0]) + torch.tensor([0.9, 1e8])
    assert summed == pytest.approx(ordered.tolist())
    assert least == pytest.approx([0.1, -1e8])
    assert (spread, behind, pair) == ([1, 1], [3.0], [[0.0], [20.0]])
    assert letters == {2: [[20.0] * 2, [21.0] * 4], 1: [[10.0] * 2, [11.0] * 4]}
    assert words == [{"part": 0}, {"part": 1}, {"part": 2}]
    # A part that failed ends the others of its process at once, and those of other processes with it.
    assert by_deal[3][1] == "failed"
    assert by_deal[3][0].startswith("lost: part 0 lost others in all_reduce")
    assert by_deal[3][2].startswith("lost: part 2 lost others in all_reduce")
    assert any("make different calls" in told for told in by_deal[4].values())


def test_a_part_that_sends_as_others_are_lost_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost_before(call: Callable[..., Any]) -> Callable[..., Any]:
        def lost(*given: Any) -> Any:
            hub.give_up("worker 1 was lost")
            return call(*given)

        return lost

    for inner in ("_depart", "_gather"):
        hub = Hub(RunStore(dist.HashStore()), 0, [0], timeout=5.0)
        carrier = hub.carrier("main", [0])
        monkeypatch.setattr(carrier, inner, lost_before(getattr(carrier, inner)))
        wire = PartWire(lambda carrier=carrier: carrier, 0)
        call = {
            "_depart": lambda wire=wire: wire.all_reduce(torch.ones(2), "sum").wait(),
            "_gather": lambda wire=wire: wire.gather_text("words", patience=5.0),
        }
        with pytest.raises(RuntimeError, match="worker 1 was lost"):
            call[inner]()


def test_a_user_is_told_once_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hub_module, "_TELL", 0.0)
    hub = Hub(RunStore(dist.HashStore()), 0, [0, 2, 1], timeout=5.0)
    assert hub.processes == 3
    with pytest.raises(RuntimeError, match=r"Timed out after 0\.1 s"):
        hub.await_values(["never"], patience=0.1, told="worker 1 reads its part")
    assert capsys.readouterr().err == "weft: worker 1 reads its part\n"
