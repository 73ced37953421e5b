"""A server in the process of the tests that answers as Google Cloud Storage's XML API is documented to, as far as roots
ask: no package does. Conditions are by generation, names are listed from one on, what is missing is told when it is
removed. It has one bucket, and does not look at who asks."""

import contextlib
import hashlib
import itertools
import threading
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import gmtime, strftime, time
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000


class Held(NamedTuple):
    """An object: its bytes, which one it is of all that were ever written, and when."""

    content: bytes
    generation: int
    time: float

    @property
    def e_tag(self) -> str:
        return f'"{hashlib.md5(self.content, usedforsecurity=False).hexdigest()}"'


class GoogleBucket:
    """What is there, and what becomes of it. Safe for threads."""

    def __init__(self, name: str):
        self.name, self.held, self._parts = name, {}, {}
        self._generations, self._lock = itertools.count(1_700_000_000_000_000), threading.Lock()

    def put(self, key: str, content: bytes, condition: str | None) -> Held | None:
        """None where the condition does not hold: it is the generation of what is to be there, ``0`` of nothing."""
        with self._lock:
            there = self.held.get(key)
            if condition is not None and int(condition) != (there.generation if there else 0):
                return None
            self.held[key] = found = Held(content, next(self._generations), time())
            return found

    def begin(self) -> str:
        """An upload in parts."""
        with self._lock:
            upload = str(next(self._generations))
            self._parts[upload] = {}
            return upload

    def put_part(self, upload: str, number: int, content: bytes) -> None:
        self._parts[upload][number] = content

    def end(self, key: str, upload: str) -> Held:
        parts = self._parts.pop(upload)
        return self.put(key, b"".join(parts[number] for number in sorted(parts)), None)

    def listed(self, prefix: str, after: str, delimiter: str) -> str:
        """A page, as XML."""
        found, folders, more = [], [], None
        with self._lock:
            for key in sorted(key for key in self.held if key.startswith(prefix) and key > after):
                if len(found) == PAGE:
                    more = found[-1]
                    break
                end = key.find(delimiter, len(prefix)) if delimiter else -1
                if end < 0:
                    found.append(key)
                elif key[: end + 1] not in folders:
                    folders.append(key[: end + 1])
            contents = "".join(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{_when(self.held[key].time)}</LastModified>"
                f"<ETag>{escape(self.held[key].e_tag)}</ETag><Size>{len(self.held[key].content)}</Size></Contents>"
                for key in found
            )
        prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders)
        token = "" if more is None else f"<NextContinuationToken>{escape(more)}</NextContinuationToken>"
        return f"<ListBucketResult>{contents}{prefixes}{token}</ListBucketResult>"


@contextlib.contextmanager
def gs_server(bucket: str) -> Iterator[str]:
    """The server, with a bucket in it, as long as the block; its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(GoogleBucket(bucket)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="Google's server", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(bucket: GoogleBucket) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _handle(self) -> None:
            self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = urlsplit(self.path)
            name, _, key = unquote(asked.path[1:]).partition("/")
            self._query = {each: values[0] for each, values in parse_qs(asked.query, keep_blank_values=True).items()}
            if name != bucket.name:
                self._fail(404, "NoSuchBucket")
            elif not key:
                query = self._query
                after = query.get("continuation-token") or query.get("start-after", "")
                said = bucket.listed(query.get("prefix", ""), after, query.get("delimiter", ""))
                self._answer(200, said.encode())
            else:
                getattr(self, f"_{self.command.lower()}")(key)

        def _put(self, key: str) -> None:
            if "uploadId" in self._query:
                bucket.put_part(self._query["uploadId"], int(self._query["partNumber"]), self._body)
                self._answer(200, b"", {"ETag": f'"{self._query["partNumber"]}"'})
                return
            content = self._body
            if source := self.headers.get("x-goog-copy-source"):
                there = bucket.held.get(unquote(source).partition("/")[2])
                if there is None:
                    self._fail(404, "NoSuchKey")
                    return
                content = there.content
            found = bucket.put(key, content, self.headers.get("x-goog-if-generation-match"))
            if found is None:
                self._fail(412, "PreconditionFailed")
            else:
                self._answer(200, b"", _said_of(found))

        def _post(self, key: str) -> None:
            if "uploads" in self._query:
                said = f"<InitiateMultipartUploadResult><UploadId>{bucket.begin()}</UploadId>"
                self._answer(200, f"{said}</InitiateMultipartUploadResult>".encode())
                return
            found = bucket.end(key, self._query["uploadId"])
            said = f"<CompleteMultipartUploadResult><ETag>{escape(found.e_tag)}</ETag></CompleteMultipartUploadResult>"
            self._answer(200, said.encode(), _said_of(found))

        def _get(self, key: str) -> None:
            found = bucket.held.get(key)
            if found is None:
                self._fail(404, "NoSuchKey")
                return
            content, headers = found.content, _said_of(found)
            start, _, end = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
            if not (start or end):
                self._answer(200, content, headers)
                return
            first = int(start) if start else max(0, len(content) - int(end))
            last = min(int(end), len(content) - 1) if start and end else len(content) - 1
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            self._answer(206, content[first : last + 1], headers)

        _head = _get

        def _delete(self, key: str) -> None:
            if bucket.held.pop(key, None) is None:
                self._fail(404, "NoSuchKey")
            else:
                self._answer(204, b"")

        def _fail(self, status: int, code: str) -> None:
            self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())

        def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    return Handler


def _said_of(found: Held) -> dict[str, str]:
    return {
        "ETag": found.e_tag,
        "x-goog-generation": str(found.generation),
        "Last-Modified": formatdate(found.time, usegmt=True),
    }


def _when(seconds: float) -> str:
    return f"{strftime('%Y-%m-%dT%H:%M:%S', gmtime(seconds))}.{int(seconds % 1 * 1000):03}Z"
