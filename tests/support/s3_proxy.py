"""A proxy before an S3 server that answers as a bad day's store does: late, not at all, or with an error."""

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import urlsplit

ERROR = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'


class Asked(NamedTuple):
    """A request: ``PUT``, the key with its query, and whether it is to put only if nothing is there."""

    method: str
    key: str
    is_conditional: bool


class Answer(NamedTuple):
    """What becomes of a request: whether it *is passed* on to the server, and what is answered: what the server says,
    an error, or, with *is_lost*, nothing, after so many *seconds*. *without* are headers that the server does not
    see."""

    is_passed: bool = True
    status: int = 0
    code: str = ""
    is_lost: bool = False
    without: tuple[str, ...] = ()
    seconds: float = 0.0


PASS = Answer()
SLOW_DOWN = Answer(is_passed=False, status=503, code="SlowDown")
LOST_BEFORE = Answer(is_passed=False, is_lost=True)
LOST_BEHIND = Answer(is_lost=True)
"""The write took place, and nobody is told."""


@contextlib.contextmanager
def s3_proxy(server_url: str, answer: Callable[[Asked], Answer]) -> Iterator[str]:
    """The proxy's URL, as long as the block; *answer* is asked, by one thread at a time, what becomes of a request."""
    server, lock = urlsplit(server_url), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                found = answer(Asked(self.command, self.path, "If-None-Match" in self.headers))
            status, headers, content = found.status, {}, ERROR.format(code=found.code).encode()
            if found.is_passed:
                status, headers, content = self._pass_on(body, found.without)
            if found.seconds:
                threading.Event().wait(found.seconds)  # as the server would, or the way to it
            if found.is_lost:
                self.close_connection = True
                return
            if found.status:
                status, content = found.status, ERROR.format(code=found.code).encode()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who asked has given up
                self._answer(status, headers, content)

        def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                    self.send_header(name, value)
            length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle

        def _pass_on(self, body: bytes, without: tuple[str, ...]) -> tuple[int, dict[str, str], bytes]:
            to_server = http.client.HTTPConnection(server.hostname, server.port)
            with contextlib.closing(to_server):
                headers = {name: value for name, value in self.headers.items() if name not in without}
                to_server.request(self.command, self.path, body, headers)
                found = to_server.getresponse()
                return found.status, dict(found.getheaders()), found.read()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    thread = threading.Thread(target=proxy.serve_forever, name="S3 proxy", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
