"""Real ranks, real signals: a run that loses a rank ends everywhere, names it, and leaves nothing behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
WORKER = str(SUPPORT / "comm_worker.py")
LAUNCH = (
    "import sys; from weft.comm.launch import run_workers\n"
    "workers, restarts, stall, *command = sys.argv[1:]\n"
    "command = [sys.executable, *command]\n"
    "sys.exit(run_workers(command, int(workers), max_restarts=int(restarts), stall=float(stall)))"
)
PATIENCE = 120.0  # for a start on a machine where others work too


class Run:
    """A launcher and its ranks."""

    def __init__(
        self, folder: Path, workers: int, what: str, guilty: int, restarts: int, stall: float
    ) -> None:
        self.folder, self.workers = folder, workers
        (folder / "tmp").mkdir()
        command = [sys.executable, "-c", LAUNCH, str(workers), str(restarts), str(stall), WORKER, what]
        self.process = subprocess.Popen(
            [*command, str(guilty), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": str(SUPPORT),
                "TMPDIR": str(folder / "tmp"),
                "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"),  # which torch makes as it is imported
            },
        )

    def ready(self) -> list[int]:
        """Wait until every rank exchanges rows, and return their process ids."""
        deadline = time.monotonic() + PATIENCE
        while len(list(self.folder.glob("0-*.ready"))) < self.workers:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, "the ranks did not start"
            time.sleep(0.05)
        return [int((self.folder / f"0-{rank}.pid").read_text()) for rank in range(self.workers)]

    def end(self, seconds: float) -> tuple[int, str, str]:
        """Return exit code and output; the run must end within so many seconds."""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err

    def left(self) -> list[int]:
        """Return the ranks' process ids that still exist."""
        return [pid for path in self.folder.glob("*.pid") if alive(pid := int(path.read_text()))]


@contextmanager
def running(
    folder: Path, workers: int, what: str, guilty: int = -1, *, restarts: int = 0, stall: float = 15.0
) -> Iterator[Run]:
    run = Run(folder, workers, what, guilty, restarts, stall)
    try:
        yield run
        assert run.left() == []
        assert list((folder / "tmp").iterdir()) == []
    finally:
        if run.process.poll() is None:
            run.process.kill()
        for pid in run.left():
            os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def listening(pids: list[int]) -> dict[str, str]:
    """Return address by socket inode for every port that the processes listen on."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                found = re.match(r"socket:\[(\d+)\]", os.readlink(link))
            except FileNotFoundError:
                continue
            inodes |= {found[1]} if found else set()
    return {inode: address for inode, address in open_ports().items() if inode in inodes}


def open_ports() -> dict[str, str]:
    ports = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                ports[fields[9]] = fields[1].split(":")[0]
    return ports


def test_kill_of_rank_0_ends_all_names_it_and_frees_every_port(tmp_path: Path) -> None:
    with running(tmp_path, 4, "run") as run:
        pids = run.ready()
        ports = listening([run.process.pid, *pids])
        assert set(ports.values()) == {"0100007F"}, "only loopback is listened on"
        assert not any("/dev/shm" in Path(f"/proc/{pid}/maps").read_text() for pid in pids)
        os.kill(pids[0], signal.SIGKILL)
        code, _, err = run.end(30)
        assert code == 3
        assert "weft: error: rank 0 was killed by SIGKILL" in err
        assert "Traceback" not in err
        assert not ports.keys() & open_ports().keys()


def test_a_stopped_rank_is_noticed_named_and_shown_with_all_stacks(tmp_path: Path) -> None:
    with running(tmp_path, 2, "run", stall=4.0) as run:
        pids = run.ready()
        os.kill(pids[1], signal.SIGSTOP)
        code, _, err = run.end(30)
        assert code == 3
        assert "weft: error: rank 1 stalled: no heartbeat for 4 s" in err
        for rank in range(2):
            stacks = err.split(f"weft: stacks of rank {rank}:\n")[1]
            assert "comm_worker.py" in stacks.split("weft: ")[0]


def test_an_exception_on_one_rank_is_told_once_and_first(tmp_path: Path) -> None:
    with running(tmp_path, 2, "raise", 1) as run:
        code, out, err = run.end(PATIENCE)
        assert (code, out) == (3, "")
        assert err.startswith("weft: rank 1 of 2 raised:\nTraceback")
        assert err.count("Traceback") == 1
        assert "in broken_model" in err
        assert "Connection closed" not in err
        assert "rank 1 raised ValueError: bad weights" in err.splitlines()[-1]


def test_a_second_ctrl_c_ends_even_ranks_that_ignore_sigterm(tmp_path: Path) -> None:
    with running(tmp_path, 2, "deaf") as run:
        run.ready()
        os.killpg(run.process.pid, signal.SIGINT)  # as a terminal does
        deadline = time.monotonic() + PATIENCE
        while len(list(tmp_path.glob("*.terminated"))) < 2:
            assert time.monotonic() < deadline, "workers leave Ctrl-C to the launcher and can stop in order"
            time.sleep(0.05)
        os.killpg(run.process.pid, signal.SIGINT)
        code, _, err = run.end(PATIENCE)
        assert code == 130
        assert err.startswith("weft: interrupted; the workers finish their epoch and save; Ctrl-C again")
        assert err.count("\n") == 1


def test_ranks_end_when_their_launcher_is_killed(tmp_path: Path) -> None:
    run = Run(tmp_path, 2, "run", -1, 0, 15.0)
    try:
        run.ready()
        run.process.kill()
        deadline = time.monotonic() + 20
        while run.left() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert run.left() == []
        assert list((tmp_path / "tmp").iterdir()) == []
    finally:
        for pid in run.left():
            os.kill(pid, signal.SIGKILL)
        run.process.communicate()


def test_a_run_that_lost_a_rank_starts_again_on_the_same_store(tmp_path: Path) -> None:
    with running(tmp_path, 2, "restart", 1, restarts=1) as run:
        code, out, err = run.end(2 * PATIENCE)
        assert (code, out) == (0, "done 2 attempt 1\n"), err
        assert "rank 1 ended with exit code 7" in err


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )


def test_the_same_worker_runs_under_torchrun() -> None:
    done = torchrun(WORKER, "check")
    assert done.returncode == 0, done.stderr
    assert "done 2 attempt 0" in done.stdout


@pytest.mark.slow
def test_torchrun_shows_the_rank_that_raised(tmp_path: Path) -> None:
    done = torchrun(WORKER, "raise", "1", str(tmp_path))
    assert done.returncode == 1
    assert "rank 1 raised ValueError: bad weights" in done.stderr


@pytest.mark.slow
def test_torchrun_restarts_with_a_fresh_prefix(tmp_path: Path) -> None:
    done = torchrun("--max-restarts", "1", WORKER, "restart", "1", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "done 2 attempt 1" in done.stdout


@pytest.mark.slow
def test_machines_that_torchrun_restarted_other_numbers_of_times_find_each_other(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "restarts"]
    command += ["--local-addr", "127.0.0.1", "--max-restarts", "1", WORKER, "apart", "1", str(tmp_path)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SUPPORT)}
    machines = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        ended = [machine.communicate(timeout=2 * PATIENCE) for machine in machines]
    finally:
        for machine in machines:
            machine.kill()
    assert [machine.returncode for machine in machines] == [0, 0], ended
    assert sum("done 2 attempt 1" in out for out, _ in ended) == 1, ended


@pytest.mark.slow
@pytest.mark.parametrize("guilty", range(4))
def test_kill_of_any_of_four_ranks_ends_all(tmp_path: Path, guilty: int) -> None:
    with running(tmp_path, 4, "run") as run:
        os.kill(run.ready()[guilty], signal.SIGKILL)
        code, _, err = run.end(30)
        assert code == 3
        assert f"rank {guilty} was killed by SIGKILL" in err


@pytest.mark.slow
def test_the_launcher_notices_when_every_rank_is_stopped(tmp_path: Path) -> None:
    with running(tmp_path, 2, "run", stall=3.0) as run:
        for pid in run.ready():
            os.kill(pid, signal.SIGSTOP)
        code, _, err = run.end(40)
        assert code == 3
        assert "stalled: no heartbeat" in err


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_plans_and_exchanges_work_on_launched_ranks(tmp_path: Path, workers: int) -> None:
    with running(tmp_path, workers, "check") as run:
        assert run.end(PATIENCE)[:2] == (0, f"done {workers} attempt 0\n")


@pytest.mark.slow
def test_a_crash_in_native_code_names_rank_and_signal(tmp_path: Path) -> None:
    with running(tmp_path, 2, "segfault", 1) as run:
        code, _, err = run.end(PATIENCE)
        assert code == 3
        assert "rank 1 was killed by SIGSEGV" in err
