"""The first signal asks, the second insists; before the first epoch there is nothing to ask for."""

import os
import signal

import pytest

from weft.comm.signals import ended_by_sigterm, stop_requests

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


def test_sigterm_ends_a_command_as_ctrl_c_does() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ended_by_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_worker_leaves_sigterm_to_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    before = signal.getsignal(signal.SIGTERM)
    with ended_by_sigterm():
        assert signal.getsignal(signal.SIGTERM) is before
