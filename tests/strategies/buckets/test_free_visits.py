"""Workers that take buckets as they come: each bucket once, one result for all, less for the slower."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from bucket_jobs import TASK, freely_trained, typed_links
from ranks import run_ranks

import weft
from weft.errors import InputError


def test_who_is_faster_trains_more_and_all_come_to_the_same_rows() -> None:
    one, other = run_ranks(2, freely_trained, 1, 0.15, 2)
    assert one["rows"] == other["rows"]
    assert one["weights"] == other["weights"]
    assert one["versions"] == other["versions"]
    assert one["losses"] == other["losses"]
    assert one["losses"][1] < one["losses"][0]
    told = one["told"]
    assert sorted(pair for (pair,) in told["visits"]) == [[a, b] for a in range(6) for b in range(a + 1, 6)]
    assert sum(told["worker_visits"]) == 15
    assert told["worker_visits"][0] > told["worker_visits"][1] >= 1
    assert told["relation_age_max"] >= 1
    assert max(one["versions"]) == 2 * 15, "a version a visit, in both epochs"
    assert one["left"] == other["left"] == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"workers": None}, r"strategy\.asynchronous: one process has nobody to be ahead of"),
        ({"order": "rounds"}, r"strategy\.order: with asynchronous = true .*not in the order 'rounds'"),
        ({"partitions": 3}, "2 workers train buckets without a partition in common"),
        ({"partitions": {"person": 4, "thing": 1}}, r"strategy\.partitions\.thing: its one partition is in"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_in_one_line(changes: dict[str, Any], told: str) -> None:
    workers = {"workers": 2} | {key: value for key, value in changes.items() if key == "workers"}
    options = {key: value for key, value in changes.items() if key != "workers"}
    strategy = {"name": "buckets", "partitions": 4, "asynchronous": True, **options}
    given = {key: value for key, value in workers.items() if value}
    with pytest.raises(InputError, match=told):
        weft.train(
            typed_links(),
            weft.nn.NoLayers(),
            strategy=strategy,
            task=TASK,
            optimizer="adagrad",
            epochs=1,
            **given,
        )


RECIPE = """
[data]
path = "{graph}"
[task]
name = "link_prediction"
width = 8
score = "complex"
loss = "softmax"
target = [["person", "likes", "thing"], ["person", "knows", "person"], ["thing", "beside", "thing"]]
[strategy]
name = "buckets"
partitions = 6
asynchronous = true
batch = 20
chunk = 10
negatives = {{count = 5}}
[train]
optimizer = "adagrad"
lr = 0.1
epochs = {epochs}
checkpoint_every = 1
"""


@pytest.mark.slow
def test_a_worker_that_dies_ends_the_run_which_then_goes_on(tmp_path: Path) -> None:
    typed_links().save(tmp_path / "graph")
    recipe, run = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text(RECIPE.format(graph=tmp_path / "graph", epochs=100_000))
    command = [sys.executable, "-m", "weft", "train", str(recipe), "--workers", "2", "--out", str(run)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 120
        while not (run / "checkpoint" / "latest").exists() and time.monotonic() < end:
            time.sleep(0.05)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        ranks = [pid for pid in children if "RANK=1" in Path(f"/proc/{pid}/environ").read_text().split("\0")]
        os.kill(int(ranks[0]), signal.SIGKILL)
        _, told = process.communicate(timeout=90)
    assert process.returncode == 3
    assert "rank 1 was killed by SIGKILL" in told
    assert "Traceback" not in told
    done = int((run / "checkpoint" / "latest").read_text().strip().split("-")[-1])
    more = ["--resume", "--set", f"train.epochs={done + 2}"]
    again = subprocess.run([*command, *more], capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 0, again.stderr
