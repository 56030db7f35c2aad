"""Workers come and go while a run trains, real processes: losses and weights are those of a fixed run."""

import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import elastic_jobs as jobs
import pytest
import torch
from run_watch import events

from weft.comm.elastic.hub import Hub
from weft.comm.group import Group
from weft.comm.rendezvous import bound_socket, host_store
from weft.comm.run_store import RunStore
from weft.config import make_recipe
from weft.report import write_report
from weft.train.resolve import resolve
from weft.train.saved.checkpoint import Checkpoint
from weft.train.saved.run_folder import read_run
from weft.train.saved.saving import Handover
from weft.train.trainer import Place
from weft.train.workers.worker import KeptGraph, prepare, train_parts


def fixed(out: Path, sections: dict[str, Any], workers: int = 1) -> tuple[list[float], bytes]:
    with jobs.Elastic(out, sections, workers, most=workers) as run:
        assert run.end() == 0, run.said
    return jobs.came_to(out)


def test_two_workers_become_four_and_three_and_one_is_killed(tmp_path: Path) -> None:
    sections = jobs.recipe(6)
    with jobs.Elastic(tmp_path / "moved", sections, gate=1) as run:
        run.after_epoch(1)
        run.wanted = 4
        run.announced(2)
        run.go_on(3)
        run.after_epoch(3)
        run.signal(0, signal.SIGTERM)
        run.announced(3)
        run.go_on(5)
        run.after_epoch(5)
        run.signal(1, signal.SIGKILL)
        run.announced(4)
        run.go_on(9)
        assert run.end() == 0, run.said
    told = run.generations()
    assert [(each["epoch"], each["workers"]) for each in told] == [
        (0, [0, 1]),
        (1, [0, 1, 2, 3]),
        (3, [1, 2, 3]),
        (4, [2, 3]),  # the end of the fifth epoch was not agreed on
    ]
    assert told[2]["parts"][0] == 1, "the one that is killed holds the first part"
    assert jobs.came_to(tmp_path / "moved") == fixed(tmp_path / "fixed", sections)
    assert [each["why"] for each in events(tmp_path / "moved", "start")] == [
        "2 to begin with, of --workers 2:4"
    ]
    page = write_report(tmp_path / "moved").read_text()
    assert "worker 1 was lost" in page
    assert "What each part costs" in page


STRATEGIES = {
    "sequential": {"name": "sequential"},
    "sampled": {"name": "sampled", "fanout": [3, 3], "batch_size": 20},
    "cached": {
        "name": "sampled",
        "fanout": [3, 3],
        "batch_size": 20,
        "store": {"name": "cached", "capacity": 0.4, "ranker": "frequency"},
    },
    # These keep rows by part, which go by the checkpoint.
    "control_variate": {"name": "control_variate", "fanout": 2, "batch_size": 20},
    "quantised": {"name": "halo", "exchange": {"name": "quantised", "bits": 4}},
    "skip": {"name": "halo", "exchange": {"name": "skip", "interval": 2}},
    "stale": {"name": "halo", "exchange": "stale"},
    "pipeline": {"name": "pipeline", "stages": 2, "fanout": [3, 3], "batch_size": 20, "micro_batches": 3},
    "late": {"name": "pipeline", "stages": [1, 1], "schedule": "1f1b", "fanout": [3, 3], "batch_size": 20},
    "learned": {"name": "halo", "embedding": {"width": 3}},
}


def test_every_place_of_a_pipeline_keeps_what_all_of_them_train(tmp_path: Path) -> None:
    """Two places that one process holds in threads: each takes a whole copy at the boundary, the same."""
    sections = jobs.recipe(2, {**STRATEGIES["pipeline"], "parts": 2})
    sections["train"]["eval_every"] = 2  # an evaluation brings the weights together, too
    store = host_store(bound_socket("127.0.0.1"), "127.0.0.1", timeout=30.0)
    hub, kept = Hub(RunStore(store), 0, [0, 0], timeout=60.0), dict[int, Checkpoint | None]()
    resolved, graphs = resolve(make_recipe(sections), workers=2), KeptGraph()
    prepare(make_recipe(sections), tmp_path, workers=2)

    def place(part: int) -> None:
        handover = Handover(
            None,
            asked=lambda: 0,
            keep=lambda epoch, take: kept.update({part: take()} if epoch == 1 else {}),
            by_disk=lambda number: False,
            span="1:2",
            told=dict,
        )
        where = Place(out=tmp_path, handover=handover, returns_model=False)
        train_parts(resolved, where, Group.of_parts(hub, part), graphs)

    threads = [threading.Thread(target=place, args=(part,), daemon=True) for part in hub.parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(jobs.PATIENCE)
    hub.close()
    first, last = kept[0], kept[1]
    assert first is not None
    assert last is not None
    trained = range(len([name for name in first.tensors["model"] if name.endswith(("weight", "bias"))]))
    assert {int(name.partition(".")[0]) for name in first.tensors["optimizer"]} == {*trained}
    for group in ("model", "optimizer"):
        held = last.tensors[group]
        assert held.keys() == first.tensors[group].keys()
        assert all(torch.equal(value, held[name]) for name, value in first.tensors[group].items())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_what_parts_keep_goes_with_them(tmp_path: Path, name: str) -> None:
    strategy = dict(STRATEGIES[name])
    embedding = strategy.pop("embedding", None)
    sections = jobs.recipe(8, strategy)
    if embedding:
        sections["model"]["embedding"] = embedding
    with jobs.Elastic(tmp_path / "moved", sections, gate=2) as run:
        run.after_epoch(2)
        run.wanted = 4
        run.announced(2)
        run.go_on(4)
        run.after_epoch(4)
        run.signal(1, signal.SIGTERM)
        run.announced(3)
        run.go_on(6)
        run.after_epoch(6)
        run.signal(0, signal.SIGKILL)
        run.announced(4)
        run.go_on(9)
        assert run.end() == 0, run.said
    assert jobs.came_to(tmp_path / "moved") == fixed(tmp_path / "fixed", sections, 2)


@pytest.mark.slow
def test_workers_come_and_go_between_the_steps_of_an_epoch(tmp_path: Path) -> None:
    sections = jobs.recipe(3, {**STRATEGIES["sampled"], "batch_size": 2, "prepare": 0}, nodes=400)
    with jobs.Elastic(tmp_path / "moved", sections, gate=1) as run:
        run.after_epoch(1)
        run.go_on(9)
        run.wanted = 3
        run.announced(2)
        assert run.end() == 0, run.said
    assert [each["workers"] for each in run.generations()] == [[0, 1], [0, 1, 2]]
    assert jobs.came_to(tmp_path / "moved") == fixed(tmp_path / "fixed", sections, 2)


@pytest.mark.slow
def test_workers_that_fail_in_many_ways_change_no_bit(tmp_path: Path) -> None:
    """One is stopped; two are killed at once; one comes while another leaves; one is killed as it comes."""
    sections = jobs.recipe(10)
    with jobs.Elastic(tmp_path / "moved", sections, 1, gate=1, stall=3.0) as run:
        run.after_epoch(1)
        run.wanted = 4
        run.announced(2)
        run.go_on(2)
        run.after_epoch(2)
        run.signal(2, signal.SIGSTOP)  # noticed by its silence
        run.announced(3)
        run.go_on(4)
        run.after_epoch(4)
        for worker in (0, 3):  # the holder of the first part, and another
            run.signal(worker, signal.SIGKILL)
        run.announced(4)
        run.go_on(6)
        run.after_epoch(6)
        run.wanted = 2
        run.until(lambda: len(run.workers) == 5)
        run.signal(1, signal.SIGTERM)
        run.until(lambda: any("worker 4 came" in text for text in run.said))
        run.go_on(8)
        run.after_epoch(8)
        run.wanted = 4
        run.until(lambda: len(run.workers) >= 7)
        run.signal(5, signal.SIGKILL)
        run.until(lambda: any("worker 6 came" in text for text in run.said))
        run.go_on(20)
        assert run.end() == 0, run.said
    assert jobs.came_to(tmp_path / "moved") == fixed(tmp_path / "fixed", sections)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["halo", "sampled", "pipeline"])
def test_a_worker_that_is_killed_within_an_epoch_changes_no_bit(tmp_path: Path, name: str, seed: int) -> None:
    """Nothing holds the run: the worker goes at whatever it is at, and another one comes in its place."""
    sections = jobs.recipe(20, STRATEGIES.get(name), nodes=400)
    clock = random.Random(f"{name} {seed}")
    killed = clock.randrange(2)
    with jobs.Elastic(tmp_path / "killed", sections, gate=2, restarts=1) as run:
        run.after_epoch(2)
        run.go_on(99)
        time.sleep(0.2 * clock.random())
        run.signal(killed, signal.SIGKILL)
        assert run.end() == 0, run.said
    assert [each["workers"] for each in run.generations()] == [[0, 1], [1 - killed, 2]]
    assert [event["epoch"] for event in run.epochs()] == list(range(1, 21)), "none is lost, nor told twice"
    assert jobs.came_to(tmp_path / "killed") == fixed(tmp_path / "fixed", sections)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["halo", "sampled", "sequential", "pipeline"])
def test_any_boundary_will_do(tmp_path: Path, name: str) -> None:
    """Two workers become four, one leaves with warning and one is killed, from each of 12 epochs on."""
    sections = jobs.recipe(12, STRATEGIES.get(name))
    wanted = fixed(tmp_path / "fixed", sections)
    for epoch in range(1, 12):
        with jobs.Elastic(tmp_path / str(epoch), sections, gate=epoch) as run:
            run.after_epoch(epoch)
            run.wanted = 4
            run.announced(2)
            run.go_on(epoch + 1)
            if epoch < 11:
                run.after_epoch(epoch + 1)
                run.signal(1, signal.SIGTERM)
                run.announced(3)
                run.go_on(epoch + 2)
            if epoch < 10:
                run.after_epoch(epoch + 2)
                run.signal(2, signal.SIGKILL)
                run.announced(4)
            run.go_on(99)
            assert run.end() == 0, run.said
        assert jobs.came_to(tmp_path / str(epoch)) == wanted
        numbers = [event["epoch"] for event in run.epochs()]
        assert numbers == list(range(1, 13)), "no epoch is lost, nor told twice"


@pytest.mark.slow
def test_a_run_saves_and_ends_when_a_leave_makes_too_few(tmp_path: Path) -> None:
    sections = jobs.recipe(6)
    with jobs.Elastic(tmp_path / "run", sections, gate=2) as run:
        run.after_epoch(2)
        run.signal(1, signal.SIGTERM)
        run.until(lambda: any("fewer than 2 workers would be left" in text for text in run.said))
        run.go_on(99)
        assert run.end() == 3, run.said
    assert any("worker 1 leaves at the next boundary (SIGTERM)" in text for text in run.said)
    assert read_run(tmp_path / "run")["status"] == "interrupted"
    done = len(run.epochs())
    assert done in (2, 3), "nothing that was trained is lost"
    with jobs.Elastic(tmp_path / "run", sections, 1, resume=True) as again:
        assert again.end() == 0, again.said
    assert jobs.came_to(tmp_path / "run") == fixed(tmp_path / "fixed", sections)


@pytest.mark.slow
def test_a_death_that_leaves_too_few_ends_the_run_and_says_how_to_go_on(tmp_path: Path) -> None:
    with jobs.Elastic(tmp_path / "run", jobs.recipe(6), gate=2) as run:
        run.after_epoch(2)
        run.signal(0, signal.SIGKILL)
        assert run.end() == 3, run.said
    assert "fewer than 2 workers are left; continue from the last checkpoint with --resume" in run.said[-1]


@pytest.mark.slow
def test_lost_workers_are_replaced_as_often_as_may_be(tmp_path: Path) -> None:
    sections = jobs.recipe(6)
    with jobs.Elastic(tmp_path / "run", sections, gate=2, restarts=2) as run:
        for number, epoch in enumerate((2, 3)):
            run.after_epoch(epoch)
            run.signal(number, signal.SIGKILL)
            run.announced(number + 2)
            run.go_on(epoch + 1 if number == 0 else 99)
        assert run.end() == 0, run.said
    assert [each["workers"] for each in run.generations()] == [[0, 1], [1, 2], [2, 3]]
    assert jobs.came_to(tmp_path / "run") == fixed(tmp_path / "fixed", sections)


@pytest.mark.slow
def test_a_run_grows_by_its_schedule_and_no_bit_changes(tmp_path: Path) -> None:
    sections = jobs.recipe(16)
    with jobs.Elastic(tmp_path / "run", sections, 1, gate=4, every=3) as run:
        for number, epoch in ((2, 7), (3, 99)):  # an epoch is told once its end was let go
            run.announced(number)
            run.go_on(epoch)
        assert run.end() == 0, run.said
    assert [each["workers"] for each in run.generations()] == [[0], [0, 1], [0, 1, 2, 3]]
    assert "2 workers from the next boundary on, epoch 3 is over" in run.said[0]
    assert jobs.came_to(tmp_path / "run") == fixed(tmp_path / "fixed", sections)
