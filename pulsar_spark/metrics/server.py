"""The HTTP server of ``/metrics``, ``/healthz`` and ``/readyz``."""

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.metrics.exporter import Exporter
from pulsar_spark.metrics.exposition import CONTENT_TYPE
from pulsar_spark.storage.delta.scan import LOOK_FAILED

log = logging.getLogger(__name__)


class MetricsServer(ThreadingHTTPServer):
    """Answers from the exporter, at a socket that listens, until it is closed."""

    daemon_threads = True

    def __init__(self, exporter: Exporter, listener: socket.socket):
        self.exporter, self.address_family = exporter, listener.family
        super().__init__(listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener

    @property
    def url(self) -> str:
        """The URL of the metrics."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if self.address_family == socket.AF_INET6 else host
        return f"http://{shown!s}:{port}/metrics"

    def handle_error(self, request, client_address) -> None:
        log.debug("a request for metrics failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = 30
    """Seconds that a client may take for its request."""

    def do_GET(self) -> None:
        exporter = cast(MetricsServer, self.server).exporter
        status, text, kind = HTTPStatus.OK, "ok\n", "text/plain; charset=utf-8"
        try:
            match self.path.partition("?")[0].rstrip("/"):
                case "/healthz":
                    pass
                case "/readyz":
                    if not exporter.is_serving():
                        status, text = HTTPStatus.SERVICE_UNAVAILABLE, "no bundle is served\n"
                case "/metrics":
                    text, kind = exporter.text(), CONTENT_TYPE
                case _:
                    status, text = HTTPStatus.NOT_FOUND, "ask for /metrics, /healthz or /readyz\n"
        except LOOK_FAILED as error:
            status, text = HTTPStatus.SERVICE_UNAVAILABLE, f"{type(error).__name__}: {error}\n"
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:
        log.debug("metrics: " + format, *values)


def listener(host: str, port: int) -> socket.socket:
    """A socket that listens, at any free port for 0; :class:`InvalidConfiguration` if the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, reuse_port=False)
    except (OSError, OverflowError) as error:
        raise InvalidConfiguration(
            f"metrics cannot be served at {host!r}, port {port}: {error}; give another port or host"
        ) from error


@contextlib.contextmanager
def serving(exporter: Exporter, listening: socket.socket) -> Iterator[MetricsServer]:
    """Answer in threads of this process for as long as the block runs."""
    server = MetricsServer(exporter, listening)
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
