"""How many workers a run grows to: by a schedule, and by what they are worth."""

import json
from pathlib import Path

import pytest
from torch.distributed import HashStore

from weft.comm.elastic.growth import Grower
from weft.comm.elastic.start import Size
from weft.comm.run_store import RunStore, new_token


class Run:
    """Workers that tell of their epochs, of which each takes some seconds by how many there are."""

    def __init__(self, grower: Grower, seconds: dict[int, float]) -> None:
        self.grower, self.seconds = grower, seconds
        self.store = RunStore(HashStore(), new_token())
        self.workers, self.generation, self.epoch, self.clock = grower.size.least, 1, 0, 100.0

    def train(self, epochs: int) -> list[int]:
        """Return the numbers of workers from now on, one an epoch."""
        seen = []
        for _ in range(epochs):
            self.epoch += 1
            self.clock += self.seconds[self.workers]
            told = {"epoch": self.epoch, "busy": 0.0, "parts": {}, "clock": self.clock}
            for worker in range(self.workers):
                self.store.set(f"took/{self.generation}/{worker}", json.dumps(told))
            wish = self.grower.look(self.store, self.generation, range(self.workers))
            if wish is not None:
                self.workers, self.generation = wish.workers, self.generation + 1
            seen.append(self.workers)
        return seen


def test_a_schedule_doubles_them_up_to_the_most(tmp_path: Path) -> None:
    run = Run(Grower(Size(1, 6, 6), 3, tmp_path / "log"), dict.fromkeys((1, 2, 4, 6), 1.0))
    assert run.train(12) == [1, 1, 2, 2, 2, 4, 4, 4, 6, 6, 6, 6]
    kept = [json.loads(line)["workers"] for line in (tmp_path / "log").read_text().splitlines()]
    assert kept == [2, 4, 6]


def test_a_schedule_gives_no_worker_again_that_was_lost(tmp_path: Path) -> None:
    run = Run(Grower(Size(1, 8, 8), 3, tmp_path / "log"), dict.fromkeys((1, 2, 3, 4, 8), 1.0))
    assert run.train(7)[-1] == 4
    run.workers, run.generation = 3, run.generation + 1
    assert run.train(3) == [3, 8, 8], "the next doubling is of the schedule"


def test_a_run_that_goes_on_has_the_workers_of_its_epoch(tmp_path: Path) -> None:
    run = Run(Grower(Size(1, 8, 8), 3, tmp_path / "log"), dict.fromkeys((1, 4), 1.0))
    run.epoch = 6
    assert run.train(1) == [4]


def test_they_grow_as_long_as_more_are_worth_more(tmp_path: Path) -> None:
    """Four are 1.25 times as fast as two, and cost twice as much: that is worth less."""
    run = Run(Grower(Size(1, 8, 8), None, tmp_path / "log"), {1: 4.0, 2: 2.0, 4: 1.6})
    assert run.train(40) == [1] * 6 + [2] * 7 + [4] * 7 + [2] * 20
    last = json.loads((tmp_path / "log").read_text().splitlines()[-1])
    assert last["workers"] == 2
    assert last["took"] == pytest.approx({"1": 4.0, "2": 2.0, "4": 1.6})
    assert last["why"] == "4 are worth 0.78 of 2, as 1 / (time x cost)"


def test_machines_are_what_is_paid(tmp_path: Path) -> None:
    """Where one machine holds four workers, one of them costs as much as four."""
    grower = Grower(Size(1, 4, 4), None, tmp_path / "log", lambda workers: -(-workers // 4))
    assert Run(grower, {1: 4.0, 2: 3.9, 4: 3.8}).train(40)[-1] == 4


def test_short_epochs_are_measured_for_long_enough(tmp_path: Path) -> None:
    run = Run(Grower(Size(1, 2, 2), None, tmp_path / "log"), {1: 0.1, 2: 0.05})
    assert run.train(29) == [1] * 29, "three seconds are not over"
    assert run.train(3)[-1] == 2


def test_nothing_is_wished_before_anybody_has_told(tmp_path: Path) -> None:
    grower = Grower(Size(1, 2, 2), 1, tmp_path / "log")
    assert grower.look(RunStore(HashStore(), new_token()), 1, [0]) is None
