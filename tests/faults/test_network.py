"""Two machines and a wire that is late, lossy or cut, and ranks or addresses that are not there."""

import ctypes
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import wire
from wire import ADDRESSES, Wire

from weft.events import read_events

BOUND = 30.0  # what is promised
SLACK = 15.0  # for processes that start and end while others have the cores
STARTING = 90.0  # four processes import torch while others have the cores
PATIENCE = 240.0
PORT = 29500
PIDFD_GETFD = 438  # the number of that call of Linux
TRAIN = [sys.executable, "-m", "weft", "train", "--set=data.name=community", "--set=data.nodes=300"]
TRAIN += ["--set=model.hidden=8"]


@pytest.fixture
def between() -> Iterator[Wire]:
    """A wire between two machines."""
    why = wire.missing()
    if why:
        pytest.skip(why)
    made = Wire()
    yield made
    made.close()


def start(
    machine: str,
    rank: int,
    out: Path,
    *,
    address: str = ADDRESSES[0],
    port: int = PORT,
    epochs: int = 100_000,
    resume: bool = False,
) -> "subprocess.Popen[str]":
    """Start a rank of two on a machine, as a scheduler without torchrun does."""
    place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": str(port)}
    place |= {
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GLOO_SOCKET_IFNAME": wire.DEVICE,
        "OMP_NUM_THREADS": "1",
    }
    command = ["ip", "netns", "exec", machine, *TRAIN, f"--set=train.epochs={epochs}", f"--out={out}"]
    command += ["--resume"] if resume else []
    return subprocess.Popen(command, env={**os.environ, **place}, stderr=subprocess.PIPE, text=True)


def end(process: "subprocess.Popen[str]", seconds: float) -> tuple[int, str]:
    """Return how a rank ended and what it said; it must end by itself within so many seconds."""
    try:
        _, said = process.communicate(timeout=seconds)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return process.returncode, said


def epochs_of(out: Path) -> int:
    with suppress(OSError, ValueError):
        return sum(event["event"] == "epoch" for event in read_events(out))
    return 0


@contextmanager
def trained(between: Wire, out: Path, epochs: int = 100_000) -> "Iterator[list[subprocess.Popen[str]]]":
    """Give two ranks that train over a wire and have done some epochs; they are ended at the latest here."""
    ranks = [start(machine, rank, out, epochs=epochs) for rank, machine in enumerate(between.machines)]
    try:
        deadline = time.monotonic() + PATIENCE
        while epochs_of(out) < 3:
            assert time.monotonic() < deadline, "the ranks did not train"
            assert all(process.poll() is None for process in ranks), [end(each, 5) for each in ranks]
            time.sleep(0.05)
        yield ranks
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
                process.communicate()


def finish(between: Wire, out: Path, *, epochs: int, resume: bool = False) -> None:
    """Train to the end."""
    ranks = [
        start(machine, rank, out, epochs=epochs, resume=resume)
        for rank, machine in enumerate(between.machines)
    ]
    ended = [end(process, PATIENCE + STARTING) for process in ranks]
    assert [code for code, _ in ended] == [0, 0], ended


def result_of(out: Path) -> tuple[list[float], bytes]:
    """Return what a run gave: the loss of each epoch, and the weights."""
    losses = [event["loss"] for event in read_events(out) if event["event"] == "epoch"]
    return losses, (out / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_cut_wire_ends_both_sides_in_time_each_with_the_cause(between: Wire, tmp_path: Path) -> None:
    with trained(between, tmp_path / "run") as ranks:
        between.cut = True
        cut = time.monotonic()
        codes, words = zip(*(end(process, BOUND + SLACK) for process in ranks))
        assert time.monotonic() - cut < BOUND
    assert codes == (3, 3)
    assert "weft: error: rank 1 stalled: no heartbeat for 15 s" in words[0]
    assert "its machine cannot be reached" in words[0]
    assert "rank 1 has had no answer from the store for 15 s: rank 0 at 198.18.77.1" in words[1]
    assert "the network to it is cut" in words[1]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_wire_that_is_cut_for_5_seconds_changes_nothing(between: Wire, tmp_path: Path) -> None:
    epochs = 150
    finish(between, tmp_path / "calm", epochs=epochs)
    with trained(between, tmp_path / "cut", epochs) as ranks:
        between.cut = True
        time.sleep(1)  # packets on their way
        done = epochs_of(tmp_path / "cut")
        time.sleep(4)
        assert epochs_of(tmp_path / "cut") == done < epochs, "nothing travels"
        assert between.lost > 0
        between.cut = False
        ended = [end(process, PATIENCE) for process in ranks]
    assert [code for code, _ in ended] == [0, 0], ended
    assert result_of(tmp_path / "cut") == result_of(tmp_path / "calm")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_slow_wire_that_loses_packets_changes_nothing(between: Wire, tmp_path: Path) -> None:
    """200 ms and 1 %, as over a bad line around the world."""
    finish(between, tmp_path / "calm", epochs=8)
    between.delay, between.loss = 0.2, 0.01
    finish(between, tmp_path / "slow", epochs=8)
    assert between.lost > 0
    assert result_of(tmp_path / "slow") == result_of(tmp_path / "calm")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_connections_that_are_reset_end_both_sides_and_the_run_continues(
    between: Wire, tmp_path: Path
) -> None:
    """What a firewall does that forgets connections: all of the ranks' own are reset, the store's is not."""
    finish(between, tmp_path / "calm", epochs=150)
    with trained(between, tmp_path / "reset", 150) as ranks:
        assert reset_connections(ranks[0].pid) > 0
        codes, words = zip(*(end(process, BOUND + SLACK) for process in ranks))
    assert codes == (3, 3)
    for said in words:  # the one that notices second has it from the other
        assert "lost its peers in" in said
        assert "the connection between them was closed from outside" in said
        assert "--resume" in said
    finish(between, tmp_path / "reset", epochs=150, resume=True)
    assert result_of(tmp_path / "reset") == result_of(tmp_path / "calm")


def reset_connections(pid: int) -> int:
    """Reset what a process has with others, but for the store; return how many connections that were.

    A socket that is connected to nowhere anew ends its connection by RST; the process itself does not know.
    """
    libc, watched, done = ctypes.CDLL(None, use_errno=True), os.pidfd_open(pid), 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        copy = libc.syscall(PIDFD_GETFD, watched, int(descriptor.name), 0)
        if copy < 0:
            pytest.skip("taking a descriptor of another process needs root")
        try:
            with socket.socket(fileno=copy) as held:
                ports = {held.getsockname()[1], held.getpeername()[1]}
                if held.family == socket.AF_INET and PORT not in ports:
                    done += libc.connect(copy, bytes(16), 16) == 0  # AF_UNSPEC
        except OSError:  # no socket, or not connected
            with suppress(OSError):
                os.close(copy)
    os.close(watched)
    return done


@pytest.mark.slow
def test_what_is_not_there_is_told_in_time(between: Wire, tmp_path: Path) -> None:
    """A rank that never comes, a rank 0 that is not there, an address without a machine, a name of nobody."""
    machines = between.machines
    began = time.monotonic()
    attempts = {
        "waited 30 s for 2 ranks; missing: 1": start(machines[0], 0, tmp_path / "a"),
        "rank 1 could not reach the store of rank 0 at 198.18.77.1, port 29501, within 30 s": start(
            machines[1], 1, tmp_path / "b", port=29501
        ),
        "could not reach the store of rank 0 at 198.18.77.99": start(
            machines[1], 1, tmp_path / "c", address="198.18.77.99"
        ),
        "MASTER_ADDR 'nobody.invalid' is no address that can be found": start(
            machines[1], 1, tmp_path / "d", address="nobody.invalid"
        ),
    }
    for words, process in attempts.items():
        code, said = end(process, BOUND + STARTING)
        assert words in said
        assert code == (2 if "MASTER_ADDR 'nobody" in words else 3)
    assert time.monotonic() - began < BOUND + STARTING
