"""The metrics of a broker, in a process of their own, which ends with the broker's.

To look costs some milliseconds of Python for each round since the last look. In the broker's process, that time would
be taken from its rounds.
"""

import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

from pulsar_spark.metrics.exporter import Exporter
from pulsar_spark.metrics.server import listener, serving

NICE, STOP_SECONDS = 5, 5.0
log = logging.getLogger(__name__)


@contextlib.contextmanager
def metrics_of_this_process(
    root: str | os.PathLike, *, port: int | None, host: str, most: int
) -> Iterator[tuple[str, int] | None]:
    """Serve metrics of the bundles that this process serves for as long as the block runs; nothing without a *port*.
    Yields host and port. :class:`InvalidConfiguration` if they cannot be had."""
    if port is None:
        yield None
        return
    with listener(host, port) as listening:
        address, descriptor = listening.getsockname()[:2], listening.fileno()
        given = [str(root), str(descriptor), str(most), str(os.getpid())]
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, *given],
            stdin=subprocess.PIPE,
            pass_fds=[descriptor],
            start_new_session=True,  # Ctrl-C reaches the broker alone
        )
    log.info("metrics at port %d of %s, by process %d", address[1], address[0], process.pid)
    try:
        yield address
    finally:
        with process:
            assert process.stdin is not None, "it is a pipe"
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            process.kill()  # it waits for a disk, unless it has ended


def main(root: str, descriptor: str, most: str, pid: str) -> None:
    """Serve until standard input ends, as it does when the broker's process is gone."""
    os.nice(NICE)
    exporter = Exporter(root, most=int(most), pid=int(pid))
    with serving(exporter, socket.socket(fileno=int(descriptor))):
        sys.stdin.buffer.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
