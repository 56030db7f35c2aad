"""A run that is killed at every change that it makes to its folder, each time continued or begun anew."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import weft

EVERY = ["data.name=community", "data.nodes=60", "data.classes=4", "data.features=8"]
EVERY += ["train.epochs=3", "train.checkpoint_every=2"]
SETTINGS = {
    "sampled": ["model.hidden=4", "strategy.batch_size=16"],
    "buckets": [
        "train.optimizer=adagrad",
        "task.name=link_prediction",
        "task.score=distmult",
        "task.width=4",
        "strategy.partitions=3",
    ],
}
# Forks share what was imported; the hook counts changes below a folder, and ends the process at one of them.
_FORKED = """
import json, os, signal, sys
import torch, weft.report, weft.cli.output, weft.train.launch
from weft.cli.main import main

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "shutil.rmtree"}

def run(words, out, stop):
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    made = 0
    def hook(event, given):
        nonlocal made
        writes = event == "open" and given[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in CHANGES) and str(given[0]).startswith(out):
            made += 1
            if made == stop:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    os._exit(main(words))

for line in sys.stdin:
    print(run(*json.loads(line)), file=sys.stderr, flush=True)
"""


class Forks:
    """Runs the command in forks of one process."""

    def __init__(self, strategy: str) -> None:
        self.settings = [*EVERY, f"strategy.name={strategy}", *SETTINGS[strategy]]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _FORKED],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def train(self, out: Path, *words: str, stop: int = 0) -> tuple[int, str]:
        """Return the exit code and what was told."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        given = ["train", f"--out={out}", *(f"--set={each}" for each in self.settings), *words]
        print(json.dumps([given, str(out), stop]), file=self.process.stdin, flush=True)
        told = ""
        while not (line := self.process.stderr.readline().strip()).lstrip("-").isdigit():
            assert line or self.process.poll() is None, told
            told += line + "\n"
        return int(line), told


def left(out: Path) -> tuple[list[float], list[bytes]]:
    losses = [event["loss"] for event in weft.read_events(out) if event["event"] == "epoch"]
    learned = [out / "model.safetensors", *(out / "embeddings").glob("*.npy")]
    return losses, [path.read_bytes() for path in learned]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("strategy", SETTINGS)
def test_killed_at_every_change_of_its_folder_a_run_gives_the_same_bits(
    tmp_path: Path, strategy: str
) -> None:
    forks = Forks(strategy)
    with forks.process:
        assert forks.train(tmp_path / "calm")[0] == 0
        wanted = left(tmp_path / "calm")
        for stop in range(1, 1000):
            out = tmp_path / f"wild{stop}"
            code, _ = forks.train(out, stop=stop)
            if code == 0:
                break  # it made fewer changes
            assert code == -9
            code, told = forks.train(out, "--resume")
            if code == 2:
                assert "holds no run to continue; leave out --resume" in told
                code, told = forks.train(out)
            assert code == 0, f"killed at change {stop}: {told}"
            assert left(out) == wanted, f"killed at change {stop}"
            half = [path.name for path in out.rglob(".*")]
            assert not half, f"killed at change {stop}"
        assert stop > 30
        forks.process.stdin.close()  # type: ignore[union-attr]
