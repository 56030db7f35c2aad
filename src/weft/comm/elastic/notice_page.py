"""A page that says whether this machine will be taken back, as the metadata of clouds do.

200 is a notice, unless all that the page says is FALSE; anything else is none: 404, a redirection, which is
not followed, an error, no answer in time. No proxy is asked, and nothing but these requests is sent.
"""

import socket
import ssl
import sys
import threading
from contextlib import closing as closed
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import SplitResult, urlsplit

from weft.errors import InputError

BOUND = 4.0
"""Seconds that a request may take as a whole."""
_EACH = 2.0  # seconds that connecting may take, and each wait for more of an answer
_MOST = 4096  # bytes of an answer that are read: a notice is a word or a line
_GOOGLE, _AMAZON = "/computeMetadata/", "/latest/meta-data/"
_AMAZON_TOKEN = "/latest/api/token"


@dataclass
class NoticePage:
    """A page that is asked by GET."""

    url: SplitResult
    port: int
    _token: str = field(default="", init=False)
    """What Amazon's metadata want to see, once they have asked for it."""
    _told: bool = field(default=False, init=False)

    @staticmethod
    def of(text: str) -> "NoticePage":
        """Return the page of a URL, or refuse one that cannot be asked."""
        if not (text.isascii() and text.isprintable()) or " " in text:
            raise InputError(f"--notice {text!r}: a URL has no spaces and no letters beyond ASCII")
        try:
            url = urlsplit(text)
            port = url.port or (443 if url.scheme == "https" else 80)
        except ValueError as error:
            raise InputError(f"--notice {text!r}: no URL: {str(error).lower()}") from None
        if url.scheme not in ("http", "https") or not url.hostname:
            raise InputError(f"--notice {text!r}: expected http://HOST/PATH or https://HOST/PATH")
        if url.username is not None or url.password is not None:
            raise InputError("--notice: other users can read a name or password in a URL; use a command")
        return NoticePage(url, port)

    def says_so(self, closing: threading.Event) -> bool:
        """Return whether the page is there, and says more than FALSE."""
        try:
            status, words = self._asked()
        except (OSError, HTTPException, ValueError) as error:
            self._tell(str(error) or type(error).__name__)
            return False
        if status not in (200, 404):
            self._tell(f"it answers {status}")
        return status == 200 and words.strip().upper() != "FALSE"

    def _asked(self) -> tuple[int, str]:
        status, words = self._request("GET", self._target, self._headers())
        if status == 401 and self.url.path.startswith(_AMAZON):
            ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
            given, token = self._request("PUT", _AMAZON_TOKEN, ttl)
            if given == 200:
                self._token = token
                return self._request("GET", self._target, self._headers())
        return status, words

    @property
    def _target(self) -> str:
        return (self.url.path or "/") + (f"?{self.url.query}" if self.url.query else "")

    def _headers(self) -> dict[str, str]:
        """Return what the metadata of a cloud ask for, by the path that they have."""
        if self.url.path.startswith(_GOOGLE):
            return {"Metadata-Flavor": "Google"}
        return {"X-aws-ec2-metadata-token": self._token} if self._token else {}

    def _request(self, method: str, target: str, headers: dict[str, str]) -> tuple[int, str]:
        """Return the status and the words of an answer."""
        with closed(self._connection()) as connection:
            connection.connect()
            # Each wait is bounded; an answer that comes in drops is ended as a whole.
            late = threading.Event()
            end = threading.Timer(BOUND, _cut, [connection.sock, late])
            end.daemon = True
            end.start()
            try:
                connection.request(method, target, headers={**headers, "Connection": "close"})
                answer = connection.getresponse()
                words = answer.read(_MOST).decode("latin-1").strip()
            finally:
                end.cancel()
        if late.is_set():  # what was cut off reads like an answer that is whole
            raise TimeoutError(f"no whole answer within {BOUND:g} s")
        return answer.status, words

    def _connection(self) -> HTTPConnection:
        assert self.url.hostname is not None, "it was checked"
        if self.url.scheme == "http":
            return HTTPConnection(self.url.hostname, self.port, timeout=_EACH)
        context = ssl.create_default_context()
        return HTTPSConnection(self.url.hostname, self.port, timeout=_EACH, context=context)

    def _tell(self, why: str) -> None:
        """Say once that the page gives no answer: a wrong URL would warn of nothing."""
        if not self._told:
            self._told = True
            place = f"{self.url.scheme}://{self.url.netloc}{self.url.path}"
            sys.stderr.write(f"weft: --notice {place}: {why}; as long as it stays so there is no warning\n")


def _cut(sock: socket.socket, late: threading.Event) -> None:
    late.set()
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
