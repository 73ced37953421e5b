"""A process that serves a share of the bundles of a root until it is killed: ``python -m tests.broker.sharing_broker
<root>``."""

import sys

from pulsar_spark.broker.service.shared import Shared
from pulsar_spark.testing.plain_broker import PlainBroker


def sharing(root, **options) -> Shared:
    """One that makes plain brokers; *options* are of both."""
    return Shared(
        root, lambda *place: PlainBroker(root, **dict(zip(("bundle", "broker_id"), place)), **options), **options
    )


if __name__ == "__main__":
    process = sharing(sys.argv[1])
    process.start()
    print("started", flush=True)
    process.wait()
