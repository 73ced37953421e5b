"""Who serves a root: as the lease of its bundle says, without a JVM and without asking the broker."""

import time

from pulsar_spark.link.requester import require_root
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.lease import BundleLease


class BrokerStatus:
    """The part of :class:`~pulsar_spark.admin.Admin` that looks for the broker."""

    layout: Layout

    def broker_status(self) -> dict | None:
        """``broker_id``, ``host``, ``pid`` and ``lease_ms`` (until when its lease holds unless it is renewed) of the
        broker that serves the root; None where none does. :class:`NotARoot` for a folder that is no root."""
        require_root(self.layout)
        holder = BundleLease(self.layout, "").holder()
        if holder is None:
            return None
        return {
            "broker_id": holder.broker_id,
            "host": holder.host,
            "pid": holder.pid,
            "lease_ms": max(0, round((holder.until - time.time()) * 1000)),
        }
