"""A broker in its own process, with its output in a file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from pulsar_spark.errors import NotConnected

_STOP_SECONDS = 60
_LAST_WORDS = 2_000


class BrokerProcess:
    """Context manager."""

    def __init__(self, root: str | os.PathLike, log: Path):
        self.root = root
        self.log = log
        self._process: subprocess.Popen[bytes]  # from __enter__ on

    def __enter__(self) -> "BrokerProcess":
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pulsar_spark.cli", "broker", "--root", str(self.root)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def check(self) -> None:
        """:class:`NotConnected`, with the end of its log, if the broker has ended."""
        if (code := self._process.poll()) is not None:
            raise NotConnected(f"the broker ended with exit code {code}; its last words:\n{self.last_words()}")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(_STOP_SECONDS)
        if code:
            raise NotConnected(
                f"the broker did not stop cleanly, exit code {code}; its last words:\n{self.last_words()}"
            )

    def last_words(self) -> str:
        """The end of its log, without Java's stack frames."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if not line.startswith("\tat ")).strip()[-_LAST_WORDS:]
