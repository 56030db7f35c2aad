"""Records of failures: what is kept of an error, and which of several explains the others."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from weft.comm import failure
from weft.comm.failure import (
    FOLDER_PREFIX,
    JOB_PREFIX,
    Failure,
    OutOfMemory,
    clear_orphan,
    describe_exit,
    first_cause,
    seconds,
)
from weft.errors import FormatError, InputError, WorkerLost


def raised(error: Exception) -> Failure:
    try:
        raise error
    except Exception as caught:
        return Failure.of(1, caught)


def test_an_exception_keeps_its_traceback_through_json() -> None:
    failure = Failure.from_json(raised(ValueError("bad")).to_json())
    assert (failure.kind, failure.told, failure.exit_code) == ("raised", "rank 1 raised ValueError: bad", 1)
    assert "raise error" in failure.traceback


def test_the_users_mistake_is_one_line_without_a_traceback() -> None:
    failure = raised(FormatError("bad\nfile"))
    assert (failure.kind, failure.message, failure.traceback, failure.exit_code) == (
        "refused",
        "bad file",
        "",
        2,
    )


def test_a_survivor_blames_the_rank_it_knows() -> None:
    failure = raised(WorkerLost("rank 2 stalled", rank=2))
    assert (failure.kind, failure.rank, failure.told) == ("lost", 2, "rank 2 stalled")


def test_a_ranks_own_word_comes_before_what_others_saw() -> None:
    seen = Failure(0, "lost", "closed", time=1.0)
    silent = Failure(2, "stalled", "stalled", time=2.0)
    late, early = Failure(1, "raised", "late", time=4.0), Failure(3, "died", "early", time=3.0)
    assert first_cause([seen, late, silent, early]) is early
    assert first_cause([seen, silent]) is silent
    assert first_cause([]) is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGKILL, "killed by SIGKILL"),
        (-signal.SIGSEGV, "SIGSEGV"),
        (7, "exit code 7"),
        (0, "exit code 0"),
    ],
)
def test_exit_codes_are_put_in_words(code: int, words: str) -> None:
    assert words in describe_exit(code)


def test_a_kill_by_the_kernel_is_told_with_what_the_process_had(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = iter([7, 7, 8])
    monkeypatch.setattr(failure, "memory_kills", lambda: next(kills))
    memory = OutOfMemory()
    assert "by hand, or by the system" in describe_exit(-signal.SIGKILL, memory)
    taken = "len(bytearray(200 << 20))"
    subprocess.run([sys.executable, "-c", f"import os; {taken}; os.kill(os.getpid(), 9)"], check=False)
    memory._peak = min(memory._peak, 1 << 20)  # other tests have had larger processes
    told = describe_exit(-signal.SIGKILL, memory)
    assert "was killed by SIGKILL (by the kernel, for lack of memory: it had " in told
    assert "use more workers" in told


def test_seconds_come_from_the_environment_or_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_STALL", raising=False)
    assert seconds("WEFT_STALL", 15.0) == 15.0
    monkeypatch.setenv("WEFT_STALL", "2.5")
    assert seconds("WEFT_STALL", 15.0) == 2.5


@pytest.mark.parametrize("text", ["abc", "", "-1", "0", "nan", "inf"])
def test_seconds_that_are_none_are_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("WEFT_STALL", text)
    with pytest.raises(InputError, match=f"WEFT_STALL must be a number of seconds .*, got '{text}'"):
        seconds("WEFT_STALL", 15.0)


def test_only_a_folder_that_a_launcher_made_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ours, others = tmp_path / f"{FOLDER_PREFIX}abc", tmp_path / "precious"
    inner = others / f"{FOLDER_PREFIX}abc"
    job = tmp_path / f"{JOB_PREFIX}abc"
    job.mkdir()
    monkeypatch.setenv("WEFT_LAUNCHER", str(os.getppid()))
    monkeypatch.setenv("WEFT_FAILURES", str(ours / "attempt0"))
    (ours / "attempt0").mkdir(parents=True)
    clear_orphan(job)
    assert ours.exists(), "the launcher lives, and clears up itself"
    assert job.exists()
    monkeypatch.setenv("WEFT_LAUNCHER", "1")
    for folder in (ours, others, inner):
        (folder / "attempt0").mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv("WEFT_FAILURES", str(folder / "attempt0"))
        clear_orphan()
    assert not ours.exists()
    assert not job.exists()
    assert (others / "attempt0").is_dir()
    assert (inner / "attempt0").is_dir()
    monkeypatch.delenv("WEFT_FAILURES")
    clear_orphan()
