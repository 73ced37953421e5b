"""``python -m tests.broker.mortal_broker ROOT WRITE...``: brokers without Spark, one after the other, each of which
kills itself, by SIGKILL, at one of its writes.

Each data file and each commit of any table is a write; 1 is the moment before the first of them, 2 the moment before
the second... 0 means never. Between a commit and the next write a broker reads, plans and answers nobody, so the moment
after a write is the moment before the next.
"""

import os
import signal
import sys
import time

from pulsar_spark.broker.load_bundle import load_bundle
from pulsar_spark.broker.reading import read_asked
from pulsar_spark.broker.rounds import Rounds
from pulsar_spark.storage import tables
from pulsar_spark.storage.commits import now_micros
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics import prepare_root
from tests.plain_planner import PlainPlanner

LOOK_SECONDS = 0.01
LAST = "the last broker serves"


def die_at(write: int) -> None:
    """End this process without a word before the *write*-th write."""
    done = 0

    def mortal(function):
        def write_or_die(*args, **kwargs):
            nonlocal done
            done += 1
            if done == write:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return write_or_die

    tables.write_files, tables.commit = mortal(tables.write_files), mortal(tables.commit)


def serve(root: str) -> None:
    layout = Layout(root)
    prepare_root(layout)
    rounds = Rounds(load_bundle(layout), PlainPlanner().run, now_micros, f"mortal-{os.getpid()}")
    rounds.take_over()
    while True:
        if not rounds.run(
            *read_asked(layout.broker_table("requests"), after=rounds.bundle.requests_version)
        ).is_committed:
            time.sleep(LOOK_SECONDS)


def serve_in_turn(root: str, writes: list[int]) -> None:
    """A copy of this process for each broker but the last, which is the process itself and says so."""
    for write in writes[:-1]:
        broker = os.fork()
        if not broker:
            die_at(write)
            serve(root)
        _, status = os.waitpid(broker, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    print(LAST, flush=True)
    die_at(writes[-1])
    serve(root)


if __name__ == "__main__":
    serve_in_turn(sys.argv[1], [int(write) for write in sys.argv[2:]])
