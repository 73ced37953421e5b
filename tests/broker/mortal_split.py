"""``python -m tests.broker.mortal_split ROOT WRITE...``: splits of the only bundle of copies of a root, each by a
process of its own that kills itself, by SIGKILL, before one of its writes: data files, whole texts, links, renames.
Copies lie beside the root, named after the write; behind the last write none is killed, and the split ends.
"""

import os
import shutil
import sys

import pytest

from pulsar_spark.broker.bundle.split import split_bundle
from pulsar_spark.storage.layout import Layout
from tests.broker.mortal_broker import mortal
from tests.support.faults import wrap_writes


def split_in_turn(root: str, writes: list[int]) -> None:
    """Prints the write at which each ended."""
    for write in writes:
        copy = f"{root}-{write}"
        shutil.copytree(root, copy)
        splitting = os.fork()
        if not splitting:
            wrap_writes(pytest.MonkeyPatch(), mortal(write))
            split_bundle(Layout(copy))
            os._exit(0)
        _, status = os.waitpid(splitting, 0)
        print(f"write {write}: {'killed' if os.WIFSIGNALED(status) else f'ended {status}'}", flush=True)


if __name__ == "__main__":
    split_in_turn(sys.argv[1], [int(write) for write in sys.argv[2:]])
