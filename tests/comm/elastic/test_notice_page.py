"""A page says that a machine will be taken back: servers of this machine answer as clouds do, or badly."""

import socket
import threading
import time

import pytest
from pages import served

from weft.comm.elastic import notice_page
from weft.comm.elastic.notice import Notice, notice_given
from weft.comm.elastic.notice_page import NoticePage
from weft.errors import InputError


def says_so(url: str) -> bool:
    return NoticePage.of(url).says_so(threading.Event())


@pytest.mark.parametrize(
    ("status", "words", "notice"),
    [
        (200, '{"action": "terminate", "time": "2026-11-19T04:00:00Z"}', True),
        (200, "TRUE", True),
        (200, "", True),
        (200, "FALSE\n", False),
        (404, "not found", False),
        (500, "TRUE", False),
        (302, "TRUE", False),
    ],
)
def test_200_is_a_notice_and_all_else_is_none(status: int, words: str, notice: bool) -> None:
    seen = []

    def answer(method: str, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], str]:
        seen.append((method, path))
        return status, {"Location": "/taken"} if status == 302 else {}, words

    with served(answer) as url:
        assert says_so(f"{url}/a/page?of=mine") is notice
    assert seen == [("GET", "/a/page?of=mine")], "nothing else is asked, wherever an answer points"


def test_metadata_of_google_and_amazon_are_asked_as_they_want_it() -> None:
    seen: list[str] = []

    def answer(method: str, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], str]:
        seen.append(method)
        if path.startswith("/computeMetadata/"):
            return (200 if headers.get("Metadata-Flavor") == "Google" else 403), {}, "TRUE"
        if method == "PUT":
            right = path == "/latest/api/token" and "X-aws-ec2-metadata-token-ttl-seconds" in headers
            return (200 if right else 400), {}, "secret"
        return (200 if headers.get("X-aws-ec2-metadata-token") == "secret" else 401), {}, "{}"

    with served(answer) as url:
        assert says_so(f"{url}/computeMetadata/v1/instance/preempted")
        page = NoticePage.of(f"{url}/latest/meta-data/spot/instance-action")
        assert page.says_so(threading.Event())
        assert page.says_so(threading.Event())
        assert not says_so(f"{url}/mine"), "a page that is not Amazon's is asked for no token"
    assert seen == ["GET", "GET", "PUT", "GET", "GET", "GET"]


def test_no_answer_is_no_notice_and_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    page = NoticePage.of(f"http://127.0.0.1:{port}/there?key=1")
    assert not page.says_so(threading.Event())
    assert not page.says_so(threading.Event())
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith(f"weft: --notice http://127.0.0.1:{port}/there: ")
    assert "as long as it stays so there is no warning" in told


def test_an_answer_that_comes_in_drops_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice_page, "BOUND", 0.2)
    left = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while not left.wait(0.02):
                    try:
                        connection.sendall(b"A: b\r\n")
                    except OSError:
                        return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        began = time.monotonic()
        assert not says_so(f"http://127.0.0.1:{server.getsockname()[1]}/")
        assert time.monotonic() - began < 10.0
        left.set()
        thread.join(5.0)


def test_a_worker_asks_it_until_it_says_so() -> None:
    told, answers = threading.Event(), iter([404, 200])

    def answer(method: str, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], str]:
        return next(answers), {}, ""

    with served(answer) as url:
        held = Notice(notice_given(url), told.set, every=0.01)
        held.start()
        assert told.wait(20.0)
        held.stop()
    assert next(answers, None) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ftp://here/x", "expected http://HOST/PATH or https://HOST/PATH"),
        ("file:///etc/passwd", "expected http://HOST/PATH"),
        ("http:///path", "expected http://HOST/PATH"),
        ("http://here:port/", "no URL: port could not be cast"),
        ("http://[::1/", "no URL: invalid ipv6 url"),
        ("http://me:secret@here/", "other users can read a name or password in a URL"),
        ("http://here/a b", "a URL has no spaces"),
        ("http://here/\u00e4", "no letters beyond ASCII"),
    ],
)
def test_what_is_no_page_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as found:
        notice_given(text)
    assert "\n" not in str(found.value)
    assert "secret" not in str(found.value)
