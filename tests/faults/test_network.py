"""Two machines and a wire, as network namespaces: a cut wire, a rank or an address that is not there."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from weft.events import read_events

ADDRESSES = ("198.18.77.1", "198.18.77.2")
SETTINGS = Path("/etc/netns")  # files here stand for those of /etc in a namespace
BOUND = 30.0  # what is promised
SLACK = 15.0  # for processes that start and end while others have the cores
STARTING = 60.0
PATIENCE = 120.0
TRAIN = [sys.executable, "-m", "weft", "train", "--set=data.name=community", "--set=data.nodes=300"]
TRAIN += ["--set=model.hidden=8"]


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[str, str]]:
    """The names of two network namespaces, joined by a wire; `eth0` is its end in each."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need iproute2 and root")
    names = (f"weft{os.getpid()}a", f"weft{os.getpid()}b")
    made: list[str] = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
            # No name server can be reached from there; these say so at once.
            SETTINGS.joinpath(name).mkdir(parents=True)
            SETTINGS.joinpath(name, "resolv.conf").write_text("nameserver 127.0.0.1\n")
            SETTINGS.joinpath(name, "hosts").write_text(
                "".join(f"{each} m{each[-1]}\n" for each in ADDRESSES)
            )
        ip(
            "link",
            "add",
            "eth0",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            names[1],
        )
        for name, address in zip(names, ADDRESSES):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        remove(made)
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")
    yield names
    remove(made)


def remove(names: list[str]) -> None:
    for name in names:
        ip("netns", "delete", name)
        shutil.rmtree(SETTINGS / name, ignore_errors=True)
    with suppress(OSError):  # somebody else's are there too
        SETTINGS.rmdir()


def start(
    machine: str,
    rank: int,
    out: Path,
    *,
    address: str = ADDRESSES[0],
    port: int = 29500,
    epochs: int = 100_000,
) -> "subprocess.Popen[str]":
    """Start a rank of two on a machine, as a scheduler without torchrun does."""
    place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": str(port)}
    place |= {
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
    }
    command = ["ip", "netns", "exec", machine, *TRAIN, f"--set=train.epochs={epochs}", f"--out={out}"]
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


@pytest.mark.slow
def test_a_cut_wire_ends_both_sides_in_time_each_with_the_cause(
    machines: tuple[str, str], tmp_path: Path
) -> None:
    ranks = [start(machine, rank, tmp_path / "run") for rank, machine in enumerate(machines)]
    try:
        deadline = time.monotonic() + PATIENCE
        while epochs_of(tmp_path / "run") < 3:
            assert time.monotonic() < deadline, "the ranks did not train"
            assert all(process.poll() is None for process in ranks), [end(each, 5) for each in ranks]
            time.sleep(0.2)
        ip("-n", machines[0], "link", "set", "eth0", "down")
        cut = time.monotonic()
        codes, words = zip(*(end(process, BOUND + SLACK) for process in ranks))
        assert time.monotonic() - cut < BOUND
    finally:
        ip("-n", machines[0], "link", "set", "eth0", "up")
        for process in ranks:
            if process.poll() is None:
                process.kill()
    assert codes == (3, 3)
    assert "weft: error: rank 1 stalled: no heartbeat for 15 s" in words[0]
    assert "its machine cannot be reached" in words[0]
    assert "rank 1 has had no answer from the store for 15 s: rank 0 at 198.18.77.1" in words[1]
    assert "the network to it is cut" in words[1]


@pytest.mark.slow
def test_what_is_not_there_is_told_in_time(machines: tuple[str, str], tmp_path: Path) -> None:
    """A rank that never comes, a rank 0 that is not there, an address without a machine, a name of nobody."""
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
