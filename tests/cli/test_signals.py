"""The first signal asks, the second insists; before the first epoch there is nothing to ask for."""

import os
import signal

import pytest

from weft.cli.signals import stop_requests

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
