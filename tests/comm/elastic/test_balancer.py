"""What the launcher makes of the times that workers tell: windows, decisions, and a log of both."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torch.distributed import HashStore

from weft.comm.elastic.balancer import Balancer
from weft.comm.elastic.busy import Busy
from weft.comm.elastic.took import Stopwatch, Took, told_by_all
from weft.comm.run_store import RunStore, new_token

HOLDERS = {part: part // 3 for part in range(6)}


def run_store() -> RunStore:
    return RunStore(HashStore(), new_token())


class Told:
    """Two workers of three parts each, of which one takes so many times as long; a second passes an epoch."""

    def __init__(self, log: Path) -> None:
        self.store, self.clock, self.epoch, self.busy = run_store(), 0.0, 0, [0.0, 0.0]
        self.balancer = Balancer(log, now=lambda: self.clock)

    def after(self, epochs: int, slower: float = 1.0, generation: int = 1) -> object:
        self.clock += epochs
        self.epoch += epochs
        for worker, factor in enumerate((1.0, slower)):
            self.busy[worker] += 0.3 * factor * epochs
            ran = {part: 0.1 * self.epoch for part, holder in HOLDERS.items() if holder == worker}
            told = {"epoch": self.epoch, "busy": self.busy[worker], "parts": ran, "clock": self.clock}
            self.store.set(f"took/{generation}/{worker}", json.dumps(told))
        return self.balancer.look(self.store, generation, HOLDERS)


def test_a_worker_that_is_slow_in_two_windows_gives_parts_away_and_the_log_says_why(tmp_path: Path) -> None:
    told = Told(tmp_path / "moves.jsonl")
    assert told.balancer.look(told.store, 1, HOLDERS) is None, "nobody has told anything"
    assert told.after(3, 3.0) is None, "windows begin where something was told"
    assert told.after(3, 3.0) is None, "one window is none in a row"
    decision = told.balancer.look(told.store, 1, HOLDERS)
    assert decision is None, "nothing new was told"
    decision = told.after(3, 3.0)
    assert decision == told.balancer.past[0]
    assert (decision.slow, [move.part for move in decision.moves]) == (1, [3, 4])
    (line,) = (tmp_path / "moves.jsonl").read_text().splitlines()
    kept = json.loads(line)
    assert kept["holders"] == [0, 0, 0, 1, 1, 1]
    assert [(each["first"], each["last"]) for each in kept["windows"]] == [(4, 6), (7, 9)]
    assert kept["decision"]["moves"][0] == {"part": 3, "source": 1, "target": 0}


def test_what_was_measured_of_other_workers_is_forgotten(tmp_path: Path) -> None:
    told = Told(tmp_path / "moves.jsonl")
    assert [told.after(3, 3.0), told.after(3, 3.0), told.after(3, 3.0, generation=2)] == [None] * 3
    assert told.after(3, 3.0, generation=2) is None


def test_a_worker_tells_once_all_of_its_parts_have_ended_the_epoch() -> None:
    store = run_store()
    watch = Stopwatch(store.set, Busy(2), 2)
    with ThreadPoolExecutor(1) as other:
        watch.note(1, 5, 0, 2)
        other.submit(watch.note, 1, 5, 1, 2).result(10)
        watch.note(1, 5, 0, 3)
        assert not told_by_all(store, 1, [5])
        other.submit(watch.note, 1, 5, 1, 3).result(10)
    took = told_by_all(store, 1, [5])[5]
    assert isinstance(took, Took)
    assert (took.epoch, sorted(took.parts)) == (3, [0, 1])
    store.set("took/1/6", json.dumps({"epoch": 6, "busy": 0.0, "parts": {}, "clock": 0.0}))
    assert told_by_all(store, 1, [5, 6]) == {}, "one is ahead"
