"""Start Spark's JVM quietly: its output and Ivy's are kept, and shown if the start fails."""

import os
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socketserver import BaseServer
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.accumulators import AccumulatorTCPServer
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from pulsar_spark.errors import SparkNotStarted

_KEPT_LINES = 1000
_PACKAGE = Path(__file__).parents[2]
_SOURCES = _PACKAGE / "frames" / "source" / "registered"
"""The modules by which Spark finds our data source; ``setup.cfg`` installs them beside the package."""


class _Chatter:
    """Reads a process's output: kept first, passed to standard error later."""

    def __init__(self):
        self._reading, self.writing = os.pipe()
        self._lines: deque[str] | None = deque(maxlen=_KEPT_LINES)
        self._lock = threading.Lock()
        threading.Thread(target=self._read, name="java-output", daemon=True).start()

    def _read(self) -> None:
        with os.fdopen(self._reading, errors="replace") as printed:
            for line in printed:
                with self._lock:
                    if self._lines is not None:
                        self._lines.append(line)
                        continue
                self._show(line)

    def pass_on(self, *, with_kept: bool) -> None:
        """Show later output, and the kept part if *with_kept*."""
        with self._lock:
            kept, self._lines = self._lines or (), None
        for line in kept if with_kept else ():
            self._show(line)

    @staticmethod
    def _show(line: str) -> None:
        try:
            sys.stderr.write(line)
        except ValueError:  # closed, because the process ends
            return


def _print_unless_ended(server: BaseServer, request: Any, client_address: Any) -> None:
    """Print errors of Spark's accumulator server, except the JVM's end."""
    if not isinstance(sys.exception(), EOFError | ConnectionError):
        BaseServer.handle_error(server, request, client_address)


@contextmanager
def _sources_on_path() -> Iterator[None]:
    """Let a JVM that starts in the block find our data source in a checkout, too."""
    name, before = "PYTHONPATH", os.environ.get("PYTHONPATH")
    if (_PACKAGE.parent / "pyspark_pulsar_spark.py").exists():
        yield
        return
    os.environ[name] = os.pathsep.join([*([before] if before else []), str(_SOURCES)])
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def quiet_start(settings: Mapping[str, str]) -> Iterator[None]:
    """Start Spark's JVM with *settings*, unless it runs, quietly until the block ends; :class:`SparkNotStarted`."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        yield
        return
    setattr(AccumulatorTCPServer, "handle_error", _print_unless_ended)  # noqa: B010
    chatter = _Chatter()
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    is_up = False
    try:
        try:
            with _sources_on_path():
                gateway = launch_gateway(conf, {"stdout": chatter.writing, "stderr": chatter.writing})
        except PySparkRuntimeError as failed:
            raise SparkNotStarted(
                "Spark's JVM ended during its start: its output says why; if jars could not be fetched, give "
                "the machine access to a repository or set spark.jars"
            ) from failed
        finally:
            os.close(chatter.writing)
        SparkContext._ensure_initialized(gateway=gateway)
        yield
        is_up = True
    finally:
        chatter.pass_on(with_kept=not is_up)
