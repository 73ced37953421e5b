"""A catalog in the process of the tests that answers what Unity Catalog is documented to of one volume: where it lies,
and credentials for it that end. It counts how often it is asked, and can be told to refuse."""

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "dapi-not-a-secret-of-anybody"
HOST = "/.well-known/databricks-config"
"""What its client asks first, of how to log in."""
READ, LEND = "/api/2.1/unity-catalog/volumes/", "/api/2.0/unity-catalog/temporary-volume-credentials"


class UnityCatalog:
    """What is told of the volume *name*, which lies at *location*: ``lent`` credentials, good for so many ``seconds``;
    or a ``refusal`` by path, its status and code. ``asked`` counts requests by path."""

    def __init__(self, name: str, location: str, lent: dict[str, dict[str, str]]):
        self.name, self.location, self.lent, self.seconds = name, location, lent, 3600
        self.refusal: dict[str, tuple[int, str]] = {}
        self.asked: Counter[str] = Counter()
        self.url = ""

    def answer(self, path: str, token: str, asked: dict) -> tuple[int, dict]:
        """The status and what is said."""
        what = READ if path.startswith(READ) else path
        self.asked[what] += 1
        if path == HOST:
            return 200, {}
        if token != f"Bearer {TOKEN}":
            return _refused(401, "UNAUTHENTICATED")
        if what in self.refusal:
            return _refused(*self.refusal[what])
        if path == READ + self.name:
            return 200, {"full_name": self.name, "storage_location": self.location, "volume_id": "a-volume"}
        if what == LEND and asked == {"operation": "WRITE_VOLUME", "volume_id": "a-volume"}:
            return 200, {**self.lent, "expiration_time": int(1000 * (time.time() + self.seconds))}
        return _refused(404, "VOLUME_DOES_NOT_EXIST")


def _refused(status: int, code: str) -> tuple[int, dict]:
    return status, {"error_code": code, "message": f"{code} in words"}


@contextlib.contextmanager
def unity_catalog(name: str, location: str, lent: dict[str, dict[str, str]]) -> Iterator[UnityCatalog]:
    """The catalog as long as the block, at its ``url``."""
    catalog = UnityCatalog(name, location, lent)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, asked: dict) -> None:
            status, said = catalog.answer(self.path, self.headers.get("Authorization", ""), asked)
            content = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    catalog.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield catalog
    finally:
        server.shutdown()
        server.server_close()
