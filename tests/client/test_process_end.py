"""Processes of a client that end at once, whatever its threads are at: with their own exit code, and with what was sent
in the topic."""

import subprocess
import sys

import pytest

from pulsar_spark.storage.delta.checkpoints import CHECKPOINT_EVERY
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.topics.topics import create_topic

PROGRAM = """
import sys
import pulsar_spark as pulsar

client = pulsar.Client("delta:" + sys.argv[1])
producer = client.create_producer("t")
for _ in range(int(sys.argv[2])):
    producer.send(b"x")
if sys.argv[3] == "close":
    client.close()
elif sys.argv[3] == "exit":
    sys.exit(7)
"""


@pytest.mark.parametrize(("how", "code"), [("close", 0), ("end", 0), ("exit", 7)])
def test_a_process_that_ends_behind_a_hundredth_commit_ends_as_it_was_told(layout, how, code):
    topic = create_topic(layout, "t")
    for turn in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(layout.root), str(CHECKPOINT_EVERY), how],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (code, "")
        assert TableLog(topic.path).latest() == turn * CHECKPOINT_EVERY
        assert (topic.path / "_delta_log" / f"{turn * CHECKPOINT_EVERY:020d}.checkpoint.parquet").exists()
    assert open_table(topic.path).version() == 2 * CHECKPOINT_EVERY
