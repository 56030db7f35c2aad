"""The launcher with workers that do little: what it sets, shows, returns. Real runs are in tests/faults."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from weft.comm import launch, run_workers
from weft.errors import InputError

FAIL = "import weft.comm.failure as f, weft.errors as e, os, sys, time; rank = int(os.environ['RANK'])\n"


def worker(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_each_rank_learns_its_place_and_only_loopback(tmp_path: Path) -> None:
    program = (
        "import os, json, sys\n"
        "open(f'{sys.argv[1]}/' + os.environ['RANK'], 'w').write(json.dumps(dict(os.environ)))"
    )
    assert run_workers([*worker(program), str(tmp_path)], 2, env={"MINE": "1"}) == 0
    seen = [__import__("json").loads((tmp_path / str(rank)).read_text()) for rank in range(2)]
    assert [place["RANK"] for place in seen] == ["0", "1"]
    for place in seen:
        assert (place["WORLD_SIZE"], place["MASTER_ADDR"], place["MINE"]) == ("2", "127.0.0.1", "1")
        assert (place["GLOO_SOCKET_IFNAME"], place["WEFT_ATTEMPT"]) == ("lo", "0")
        assert not Path(place["WEFT_FAILURES"]).exists()


def test_cores_are_shared_among_the_ranks(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    program = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['OMP_WAIT_POLICY'])"
    assert run_workers(worker(program), 2) == 0
    shown = capfd.readouterr()
    assert shown.out == "3 passive\n", "rank 0 keeps standard output"
    assert shown.err == "[rank 1] 3 passive\n", "others speak with their rank, on standard error"


def test_first_cause_is_shown_once_and_secondary_errors_are_not(capfd: pytest.CaptureFixture[str]) -> None:
    program = FAIL + (
        "def run():\n"
        "    if rank != 1: raise e.WorkerLost('Connection closed by peer')\n"
        "    time.sleep(0.5); raise ValueError('bad weights')\n"
        "f.guarded(run)"
    )
    assert run_workers(worker(program), 3) == 3
    shown = capfd.readouterr().err
    assert shown.startswith("weft: rank 1 of 3 raised:\nTraceback")
    assert shown.count("Traceback") == 1
    assert "Connection closed" not in shown
    assert shown.endswith("weft: error: rank 1 raised ValueError: bad weights; all 3 workers were ended\n")


def test_traceback_of_a_worker_that_told_nothing_is_shown_once(capfd: pytest.CaptureFixture[str]) -> None:
    program = FAIL + "if rank == 1: raise RuntimeError('import went wrong')\ntime.sleep(60)"
    assert run_workers(worker(program), 2) == 3
    shown = capfd.readouterr().err
    assert shown.count("[rank 1] RuntimeError: import went wrong") == 1
    assert "rank 1 ended with exit code 1" in shown


def test_tracebacks_that_follow_the_first_are_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    program = FAIL + "if rank: time.sleep(rank / 2 - 0.5); raise RuntimeError(f'of {rank}')\ntime.sleep(60)"
    assert run_workers(worker(program), 3) == 3
    shown = capfd.readouterr().err
    assert shown.count("Traceback") == 1
    assert "[rank 1] RuntimeError: of 1" in shown


@pytest.mark.parametrize(("guilty", "named"), [("rank >= 0", ""), ("rank == 1", "rank 1: ")])
def test_the_users_mistake_is_one_line_and_exit_code_2(
    guilty: str, named: str, capfd: pytest.CaptureFixture[str]
) -> None:
    program = FAIL + (
        "def run():\n"
        f"    if {guilty}: raise e.FormatError('part-00001 is truncated')\n"
        "    raise e.WorkerLost('rank 1 is gone')\n"
        "f.guarded(run)"
    )
    assert run_workers(worker(program), 2, max_restarts=2) == 2
    assert capfd.readouterr().err == f"weft: error: {named}part-00001 is truncated\n"


def test_a_lost_run_starts_again_as_often_as_allowed(capfd: pytest.CaptureFixture[str]) -> None:
    program = (
        FAIL
        + "print(os.environ['WEFT_ATTEMPT'], flush=True)\nif os.environ['WEFT_ATTEMPT'] < '2': os._exit(9)"
    )
    assert run_workers(worker(program), 1, max_restarts=1) == 3
    assert run_workers(worker(program), 1, max_restarts=3) == 0
    shown = capfd.readouterr()
    assert shown.out.split() == ["0", "1", "0", "1", "2"]
    assert "starting again from the last checkpoint (2 of 3)" in shown.err


STOPPING = """
import os, signal, sys, time
from pathlib import Path
folder, rank = Path(sys.argv[1]), os.environ["RANK"]
def stop(*_):
    (folder / f"{rank}.asked").touch()
    time.sleep(float(sys.argv[2]))  # an epoch takes its time
    (folder / f"{rank}.saved").touch()
    os._exit(130 if rank == "0" else 0)
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, stop)
(folder / f"{rank}.ready").touch()
time.sleep(120)
"""


@contextmanager
def signalled(folder: Path, after: list[str]) -> Iterator[None]:
    """Send this process SIGINT each time that both ranks have left the next of some marks."""

    def send() -> None:
        for mark in after:
            deadline = time.monotonic() + 100
            while len(list(folder.glob(f"*.{mark}"))) < 2 and time.monotonic() < deadline:
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_after_the_first_ctrl_c_ranks_have_the_time_to_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "GRACE", 0.1)
    with signalled(tmp_path, ["ready"]):
        assert run_workers([*worker(STOPPING), str(tmp_path), "1.5"], 2) == 130
    assert len(list(tmp_path.glob("*.saved"))) == 2
    assert "Ctrl-C again stops them at once" in capfd.readouterr().err


def test_the_second_ctrl_c_waits_for_nobody(tmp_path: Path) -> None:
    with signalled(tmp_path, ["ready", "asked"]):
        assert run_workers([*worker(STOPPING), str(tmp_path), "100"], 2) == 130
    assert not list(tmp_path.glob("*.saved"))


def test_what_fails_while_ranks_stop_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = FAIL + (
        "import signal, pathlib\n"
        "def full(*_): raise e.InputError('no space left for the checkpoint')\n"
        "def run():\n"
        "    signal.signal(signal.SIGTERM, full)\n"
        "    (pathlib.Path(sys.argv[1]) / f'{rank}.ready').touch(); time.sleep(120)\n"
        "f.guarded(run)"
    )
    with signalled(tmp_path, ["ready"]):
        assert run_workers([*worker(program), str(tmp_path)], 2) == 130
    assert "no space left for the checkpoint" in capfd.readouterr().err


def test_lines_after_a_logged_traceback_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    program = FAIL + (
        "import traceback\n"
        "try: raise ValueError('odd')\n"
        "except ValueError: traceback.print_exc()\n"
        "if rank: print('retrying: fine now', flush=True)\n"
        "try: raise ValueError('last')\n"
        "except ValueError: traceback.print_exc()"
    )
    assert run_workers(worker(program), 2) == 0
    shown = capfd.readouterr().err
    assert "[rank 1] ValueError: odd\n[rank 1] retrying: fine now\n" in shown
    assert "[rank 1] ValueError: last\n" in shown, "a rank that ended well has only logged it"


def test_a_stall_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_STALL", "abc")
    with pytest.raises(InputError, match="WEFT_STALL must be a number of seconds"):
        run_workers(["true"], 2)


def test_no_workers_are_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        run_workers(["true"], 0)


def test_the_launcher_loads_no_torch_before_its_workers_run() -> None:
    program = "import sys, weft.comm.launch, weft.comm.failure; assert 'torch' not in sys.modules"
    subprocess.run(worker(program), check=True)


def test_ranks_are_told_when_the_user_began_to_wait(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import os, sys, time; print(round(time.time() - float(os.environ['WEFT_BEGAN'])));"
    again = code + "sys.exit(0 if os.environ['WEFT_ATTEMPT'] == '1' else 1)"
    began = time.time() - 1000
    assert run_workers(worker(again), 1, max_restarts=1, began=began) == 0
    first, second = (int(line) for line in capfd.readouterr().out.split())
    assert first >= 1000
    assert second < 500, "what came before is in the checkpoint"
