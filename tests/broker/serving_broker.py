"""The command ``pulsar-spark broker``, but for Spark, until it is told to stop: ``python -m tests.broker.serving_broker
<root>``."""

import sys
from unittest.mock import Mock

from pulsar_spark.broker.service import process
from pulsar_spark.testing.plain_broker import PlainBroker


class Served(PlainBroker):
    """A plain broker that takes what a broker takes."""

    def __init__(self, spark, root, **options):
        super().__init__(root, **options)


if __name__ == "__main__":
    process.Broker = Served
    process.run_broker(sys.argv[1], spark=Mock())
