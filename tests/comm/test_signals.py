"""The first signal asks, the second insists; before the first epoch there is nothing to ask for."""

import importlib
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from weft.comm.signals import Interrupted, ended_by_signals, stop_requests

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_a_request_and_the_second_stops_at_once(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    with stop_requests() as asked:
        assert not asked()
        os.kill(os.getpid(), number)
        assert asked()
        assert "stopping after this epoch" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_the_first_epoch_stops_at_once(number: signal.Signals) -> None:
    with stop_requests(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with stop_requests():
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize("number", SIGNALS)
def test_both_signals_end_a_command(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with pytest.raises(Interrupted), ended_by_signals():
        os.kill(os.getpid(), number)
    assert [signal.getsignal(each) for each in SIGNALS] == before


# CPython remembers a plain KeyboardInterrupt that passes through a text which is executed.
EXECUTED = """
import os, signal, sys
from weft.comm.signals import ended_by_signals
try:
    with ended_by_signals():
        exec("os.kill(os.getpid(), signal.SIGINT)\\nwhile True: pass")
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_a_signal_while_a_text_is_executed_leaves_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "executed.py").write_text(EXECUTED)
    ended = subprocess.run([sys.executable, "-m", "executed"], cwd=tmp_path, timeout=60)
    assert ended.returncode == 130


def test_a_signal_that_code_turns_into_another_error_still_ends_the_command() -> None:
    def start_module() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("initialisation failed") from None

    with pytest.raises(Interrupted) as caught, ended_by_signals():
        start_module()
    assert isinstance(caught.value.__cause__, ImportError)


def test_a_signal_in_a_finaliser_is_not_lost() -> None:
    class Ended:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    def work() -> None:
        ended = Ended()
        del ended
        time.sleep(10)

    with pytest.raises(Interrupted), ended_by_signals():
        work()


IMPORTED = """
import os, signal, sys

try:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range({more}):
        os.kill(os.getpid(), signal.SIGINT)
except BaseException:
    sys.raised_in_import = True
"""


@pytest.mark.parametrize("more", [0, 1], ids=["first", "second"])
def test_only_a_second_signal_is_raised_within_an_import(
    more: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"imported_{more}"
    (tmp_path / f"{name}.py").write_text(IMPORTED.format(more=more))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "raised_in_import", False, raising=False)

    def work() -> None:
        importlib.import_module(name)
        time.sleep(10 * (1 - more))

    with pytest.raises(Interrupted) if more == 0 else nullcontext(), ended_by_signals():
        work()
    assert vars(sys)["raised_in_import"] == bool(more)


def test_a_signal_that_was_swallowed_before_training_ends_it_there() -> None:
    def train() -> None:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        with stop_requests():
            pytest.fail("nothing may begin")

    with pytest.raises(Interrupted), ended_by_signals():
        train()


def test_other_errors_of_finalisers_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    class Ended:
        def __del__(self) -> None:
            raise ValueError("of a finaliser")

    with ended_by_signals():
        ended = Ended()
        del ended
    assert "of a finaliser" in capsys.readouterr().err


def test_a_job_in_the_background_goes_on_ignoring_ctrl_c() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ended_by_signals():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_worker_leaves_sigterm_to_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    before = signal.getsignal(signal.SIGTERM)
    with ended_by_signals():
        assert signal.getsignal(signal.SIGTERM) is before
