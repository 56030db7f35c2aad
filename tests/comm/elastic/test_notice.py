"""A command of the user's says that a machine will be taken back."""

import os
import select
import sys
import threading
import time
from pathlib import Path

import pytest

from weft.comm.elastic import notice
from weft.comm.elastic.notice import Notice, NoticeCommand, notice_given
from weft.comm.elastic.notice_page import NoticePage
from weft.errors import InputError


def asked(command: list[str], told: threading.Event) -> Notice:
    held = Notice(NoticeCommand(tuple(command)), told.set, every=0.01)
    held.start()
    return held


def test_it_is_asked_until_it_ends_with_zero(tmp_path: Path) -> None:
    told, file = threading.Event(), tmp_path / "taken; back"
    held = asked(["test", "-e", str(file)], told)
    assert not told.wait(0.3)
    file.touch()
    assert told.wait(20.0)
    held.stop()


def test_one_that_hangs_or_cannot_be_run_has_said_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice, "BOUND", 0.1)
    told = threading.Event()
    hanging = asked(["sleep", "60"], told)
    gone = asked(["/nowhere/notice"], told)
    assert not told.wait(0.5)
    began = time.monotonic()
    hanging.stop()
    gone.stop()
    assert time.monotonic() - began < 2.0
    assert "weft-notice" not in {thread.name for thread in threading.enumerate()}


def test_what_a_command_that_hangs_has_started_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice, "BOUND", 1.0)
    held = tmp_path / "held"
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert not NoticeCommand(("sh", "-c", f"sleep 60 > '{held}'; true")).says_so(threading.Event())
        assert select.select([reader], [], [], 5.0)[0], "nobody holds it any more"
    finally:
        os.close(reader)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "--notice: expected a command or a URL, got an empty one"),
        ("curl 'x", "no command: no closing quotation"),
        ("weft-no-such-command --now", "'weft-no-such-command' is no command that can be run"),
    ],
)
def test_what_is_no_command_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        notice_given(text)


def test_words_are_a_command_and_what_has_a_scheme_is_a_page() -> None:
    command = notice_given(f"{sys.executable} -c 'pass; pass'")
    assert isinstance(command, NoticeCommand)
    assert command.words[1:] == ("-c", "pass; pass")
    assert isinstance(notice_given("test http://here/"), NoticeCommand)
    assert isinstance(notice_given(" http://here/ "), NoticePage)
