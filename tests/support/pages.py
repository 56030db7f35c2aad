"""A server of pages on this machine, for as long as a test wants it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

Answer = Callable[[str, str, dict[str, str]], tuple[int, dict[str, str], str]]
"""Status, headers and words for a method, a path and headers."""


@contextmanager
def served(answer: Answer) -> Iterator[str]:
    """Give the URL of a server that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def _say(self) -> None:
            status, headers, words = answer(self.command, self.path, dict(self.headers))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(words.encode())

        do_GET = do_PUT = _say

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
