"""``python -m tests.broker.mortal_broker ROOT WRITE``: a broker without Spark that kills itself, by SIGKILL, at one of
its writes.

Each data file and each commit of any table is a write; 1 is the moment before the first of them, 2 the moment before
the second... 0 means never. Between a commit and the next write a broker reads, plans and answers nobody, so the moment
after a write is the moment before the next.
"""

import os
import signal
import sys
import time

from pulsar_spark.broker.clock import now_micros
from pulsar_spark.broker.load_bundle import load_bundle
from pulsar_spark.broker.reading import read_asked
from pulsar_spark.broker.rounds import Rounds
from pulsar_spark.storage import tables
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics import prepare_root
from tests.plain_planner import PlainPlanner

LOOK_SECONDS = 0.01


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


if __name__ == "__main__":
    die_at(int(sys.argv[2]))
    serve(sys.argv[1])
