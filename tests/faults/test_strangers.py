"""Runs beside each other, and strangers at their ports: garbage, and words that nobody of them said."""

import os
import random
import socket
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

import weft
from weft.comm.failure import Failure
from weft.comm.rendezvous import TCPStore

TRAIN = [sys.executable, "-m", "weft", "train", "--set=data.name=community", "--set=data.nodes=300"]
TRAIN += ["--set=model.hidden=8", "--workers=2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
FORGED = {
    "attempt0/beat/1": ["garbage", b"\xff\xfe", "1 x y", "done 0 end", ""],
    "attempt0/beat/0": [b"\x00", "done 0 end"],
    "attempt0/failure": [Failure(0, "raised", "ValueError: of nobody").to_json(), "{"],
    "attempt0/left/1": ["1"],
}


def start(out: Path, epochs: int = 40) -> "subprocess.Popen[str]":
    command = [*TRAIN, f"--out={out}", f"--set=train.epochs={epochs}"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


def finish(process: "subprocess.Popen[str]") -> str:
    try:
        _, told = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0, told
    return told


def family(pid: int) -> list[int]:
    """Return a process and those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(member for child in children for member in family(int(child)))]


def open_ports(pid: int) -> list[int]:
    """Return the ports on which a process and its children listen."""
    held = set()
    for member in family(pid):
        for descriptor in Path(f"/proc/{member}/fd").iterdir():
            with suppress(OSError):
                held.add(os.readlink(descriptor))
    ports = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in held:
            ports.append(int(fields[1].split(":")[1], 16))
    return ports


def disturb(pid: int, draw: random.Random) -> tuple[int, int]:
    """Send garbage to every port of a run, and forged words to its store; return how many of each."""
    ports = open_ports(pid)
    for port in ports:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as link:
            link.sendall(draw.randbytes(draw.choice([0, 1, 16, 1000])))
    environment = Path(f"/proc/{family(pid)[-1]}/environ").read_text().split("\0")
    told = next((text for text in environment if text.startswith("MASTER_PORT=")), None)
    if told is None:
        return len(ports), 0
    store = TCPStore("127.0.0.1", int(told[12:]), timeout=timedelta(seconds=5), wait_for_workers=False)
    key = draw.choice(list(FORGED))
    store.set(key, draw.choice(FORGED[key]))
    return len(ports), 1


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc")
def test_two_runs_at_once_and_strangers_at_every_port_change_no_bit(tmp_path: Path) -> None:
    finish(start(tmp_path / "alone"))
    draw, scanned, forged = random.Random(0), 0, 0
    runs = {name: start(tmp_path / name) for name in ("first", "second")}
    try:
        while any(process.poll() is None for process in runs.values()):
            for process in runs.values():
                with suppress(OSError, RuntimeError, IndexError):  # it is about to end
                    ports, words = disturb(process.pid, draw)
                    scanned, forged = scanned + ports, forged + words
            time.sleep(0.02)
    finally:
        told = {name: finish(process) for name, process in runs.items()}
    assert scanned > 100
    assert forged > 20
    for name, words in told.items():
        assert "does not carry the run's token" in words
        for file in ("model.safetensors", "predictions.parquet"):
            if (tmp_path / "alone" / file).exists():
                assert (tmp_path / name / file).read_bytes() == (tmp_path / "alone" / file).read_bytes()
        losses = [
            [event["loss"] for event in weft.read_events(tmp_path / each) if event["event"] == "epoch"]
            for each in (name, "alone")
        ]
        assert losses[0] == losses[1]
