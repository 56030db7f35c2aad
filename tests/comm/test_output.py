"""Lines of ranks: shown as they come, tracebacks held until it is known whether they explain the end."""

import os

import pytest

from weft.comm.output import RankOutput

LOGGED = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    f()\nValueError: bad\n'
CHAINED = f"{LOGGED}\nDuring handling of the above exception, another exception occurred:\n\n{LOGGED}"


def forwarded(text: str, *, quiet: bool = False) -> RankOutput:
    """Have a rank write a text and end; everything was read when this returns."""
    reading, writing = os.pipe()
    output = RankOutput(1, os.fdopen(reading, "rb"))
    output.quiet = quiet
    os.write(writing, text.encode())
    os.close(writing)
    output._thread.join(timeout=60)
    return output


def prefixed(text: str) -> str:
    return "".join(f"[rank 1] {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("logged", [LOGGED, CHAINED, f"{LOGGED}\n"], ids=["plain", "chained", "blank"])
def test_a_traceback_that_was_only_logged_is_shown_with_what_follows(
    capfd: pytest.CaptureFixture[str], logged: str
) -> None:
    forwarded(f"{logged}retrying: fine now\nand on\n")
    assert capfd.readouterr().err == prefixed(f"{logged}retrying: fine now\nand on\n")


@pytest.mark.parametrize("held", [LOGGED, CHAINED], ids=["plain", "chained"])
def test_a_traceback_at_the_end_is_held_until_it_is_asked_for(
    capfd: pytest.CaptureFixture[str], held: str
) -> None:
    output = forwarded(f"hello\n{held}")
    assert capfd.readouterr().err == prefixed("hello\n")
    output.finish(show=True)
    output.finish(show=False)
    assert capfd.readouterr().err == prefixed(held), "all of it, once"


def test_a_traceback_of_which_another_is_the_cause_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    forwarded(f"{LOGGED}goodbye\n", quiet=True).finish(show=False)
    assert capfd.readouterr().err == ""
