"""A package that a worker of Spark imports before it needs it is found here: each worker is a new process, which has
ten seconds to start."""

import subprocess
import sys

SOURCE = "pulsar_spark.frames.source"
PROGRAM = f"""
import sys
def check(*absent):
    print([name for name in absent if name in sys.modules])
from {SOURCE}.data_source import PulsarSparkSource
PulsarSparkSource({{"root": "r", "topic": "t"}}).schema()
check("deltalake", "obstore", "pandas", "pyarrow.dataset", "pulsar_spark.link", "pulsar_spark.storage.delta.scan")
import {SOURCE}.topic_stream
check("obstore", "pandas", "pyarrow.dataset", "pulsar_spark.link.channel", "pulsar_spark.client.client")
import {SOURCE}.subscription_stream
check("obstore", "pandas", "pyarrow.dataset", "pulsar_spark.client.client", "pulsar_spark.client.model.message",
      "pulsar_spark.frames.consuming.consumer", "cryptography", "fastavro")
"""


def test_each_use_imports_what_it_needs():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["[]"] * 3, done.stdout + done.stderr
