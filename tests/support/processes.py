"""Programs that use the client, as processes of their own: what a signal does to them, how they end, what they say."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

from tests.broker.mortal_broker import TABLES

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 300


class Program:
    """``Program(source, service_url)``: *source* runs with ``pulsar`` and ``url`` defined; what it prints is read line
    by line."""

    def __init__(self, source: str, service_url: str, *, cwd: str | os.PathLike | None = None):
        head = "import os, sys, threading, time, signal\nimport pulsar_spark as pulsar\nurl = sys.argv[1]\n"
        head += "signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a run of the tests under nohup ignores it\n"
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", head + textwrap.dedent(source), service_url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=dict(os.environ, PYTHONPATH=str(ROOT)),
            start_new_session=True,
        )
        self._seen = b""

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *failure) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def say(self, line: str) -> None:
        """Wait until the program has printed *line*."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while line.encode() not in self._seen.split(b"\n")[:-1]:
                assert selector.select(max(0.0, deadline - time.monotonic())), (
                    f"{line!r} was not printed: {self._seen!r}"
                )
                read = os.read(self.process.stdout.fileno(), 65536)
                assert read, f"{line!r} was not printed: {self._seen!r} {self.process.communicate()[1].decode()}"
                self._seen += read

    def wait_in_a_call(self) -> None:
        """Wait until every thread of the program was asleep in ten looks in a row: it is inside the call then."""
        asleep, deadline = 0, time.monotonic() + DEADLINE_SECONDS
        while asleep < 10 and time.monotonic() < deadline:
            asleep = asleep + 1 if set(self._thread_states()) == {"S"} else 0
            time.sleep(0.025)

    def _thread_states(self) -> Iterator[str]:
        """The state of each thread, such as ``R`` or ``S`` (proc(5))."""
        for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                yield (thread / "stat").read_text().rpartition(")")[2].split()[0]

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, list[str], str]:
        """Exit code, lines printed and standard error, when it has ended by itself."""
        out, error = self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode, (self._seen + out).decode().splitlines(), error.decode()


def run(source: str, service_url: str, **options) -> tuple[int, list[str], str]:
    """Run a program to its end."""
    with Program(source, service_url, **options) as program:
        return program.end()


@contextlib.contextmanager
def broker_process(root: Path) -> Iterator[subprocess.Popen]:
    """A broker in a process of its own: real rounds on real tables, planned without Spark."""
    command = [sys.executable, "-m", "tests.broker.mortal_broker", TABLES, str(root), "0"]
    process = subprocess.Popen(command, cwd=ROOT, env=dict(os.environ, PYTHONPATH=str(ROOT)))
    try:
        yield process
    finally:
        process.kill()
        process.wait()
