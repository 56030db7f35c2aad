"""Workers that a real Ray places: a node is killed while they train, and no bit changes."""

import json
import subprocess
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest
from run_watch import came_to, events
from started_runs import PATIENCE, lives, said, started, until

from weft.comm.elastic.ray_home import children_of
from weft.events import read_events

pytest.importorskip("ray", reason="Ray is not installed: pip install 'weft[ray]'")
import ray_nodes

# Steps of two nodes: an epoch is long enough for something to come between.
SLOW = ["strategy.name=sampled", "strategy.fanout=[3,3]", "strategy.batch_size=2", "strategy.prepare=0"]


def ray_run(out: Path, *words: str, epochs: int) -> AbstractContextManager["subprocess.Popen[str]"]:
    settings = (*SLOW, f"train.epochs={epochs}")
    return started(out, "--parts=4", *words, settings=settings, env=ray_nodes.environment())


def workers_of(out: Path) -> list[int]:
    """Return the processes that work for a run, the launcher left out."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if f"--out={out}".encode() in words and b"WEFT_MEMBER=" in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_node_of_ray_is_killed_another_comes_and_the_bits_stay(tmp_path: Path) -> None:
    out, fixed = tmp_path / "moved", tmp_path / "fixed"
    with ray_nodes.nodes() as nodes:
        words = ("--engine=ray", f"--ray-address={nodes.address}", "--workers=1:3", "--json")
        with ray_run(out, *words, epochs=40) as run:
            until(lambda: len(workers_of(out)) == 2 and len(events(out, "epoch")) > 2, run, out)
            until(lambda: len(events(out, "generation")[-1]["workers"]) == 2, run, out)
            nodes.say("kill")
            until(lambda: len(events(out, "generation")[-1]["workers"]) == 1, run, out)
            assert "was lost with its machine" in said(out)
            nodes.say("add")
            until(lambda: len(events(out, "generation")[-1]["workers"]) == 2, run, out)
            assert run.wait(PATIENCE) == 0, said(out)
            assert run.stdout is not None
            assert json.loads(run.stdout.read())["epochs"] == 40, "a worker's words come to the launcher"
        assert workers_of(out) == []
    with ray_run(fixed, "--workers=4:4", epochs=40) as run:
        assert run.wait(PATIENCE) == 0, said(fixed)
    assert came_to(out) == came_to(fixed)
    assert [event["epoch"] for event in read_events(out) if event["event"] == "epoch"] == list(range(1, 41))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_launcher_that_is_killed_leaves_no_worker_and_no_ray(tmp_path: Path) -> None:
    """Without an address weft starts a Ray, which is gone with it."""
    out = tmp_path / "run"
    with ray_run(out, "--engine=ray", "--workers=2", epochs=100000) as run:
        until(lambda: len(events(out, "epoch")) > 2, run, out)
        rays = children_of(run.pid)
        assert len(rays) > 4
        run.kill()
        deadline = time.monotonic() + 60
        while (left := [each for each in rays if lives(each)]) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert left == []
