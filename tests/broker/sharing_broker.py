"""A process that serves a share of the bundles of a root until it is killed: ``python -m tests.broker.sharing_broker
<root>``."""

import sys

from pulsar_spark.broker.shared import Shared
from tests.plain_broker import PlainBroker


def sharing(root) -> Shared:
    """One that makes plain brokers."""
    return Shared(root, lambda bundle, broker_id: PlainBroker(root, bundle=bundle, broker_id=broker_id))


if __name__ == "__main__":
    process = sharing(sys.argv[1])
    process.start()
    print("started", flush=True)
    process.wait()
