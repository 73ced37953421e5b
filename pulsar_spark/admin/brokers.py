"""Brokers of a root: which serve it, which one serves a topic, and whether they answer."""

import time

from pulsar_spark.errors import ServiceUnitNotReady
from pulsar_spark.link.requester import Requester, require_root
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease, Holder
from pulsar_spark.storage.topics.bundles import bundles_of, layout_of, layouts_of
from pulsar_spark.storage.topics.topics import resolve_topic


class Brokers:
    """Part of ``Admin`` for brokers."""

    layout: Layout
    _requester: Requester

    def brokers(self) -> list[dict]:
        """The brokers that serve bundles: ``broker`` (its id), ``host``, ``pid``, and ``bundles`` as :meth:`bundles`
        names them."""
        require_root(self.layout)
        found: dict[str, dict] = {}
        for served, holder in self._holders():
            if holder is not None:
                broker = found.setdefault(holder.broker_id, {**_shown(holder), "bundles": []})
                broker["bundles"].append(served)
        return list(found.values())

    def lookup(self, topic: str) -> dict:
        """The bundle that has a topic, its ``path``, and its ``broker``, with ``host`` and ``pid``; None for these if
        no broker serves it."""
        name, _ = resolve_topic(self.layout, topic)
        layout, bundles = layout_of(self.layout, name.name), bundles_of(self.layout)
        holder = BundleLease(layout, "").holder()
        return {
            "topic": str(name.name),
            "bundle": str(bundles.range_of(layout.bundle)),
            "path": str(layout.bundle_folder()),
            **(dict.fromkeys(("broker", "host", "pid")) if holder is None else _shown(holder)),
        }

    def healthcheck(self) -> float:
        """Let the broker of each bundle answer a request in a round, and return the seconds until all had answered.

        :class:`ServiceUnitNotReady` if a bundle has no broker, :class:`Timeout` if a broker does not answer in time.
        """
        require_root(self.layout)
        unserved = [served for served, holder in self._holders() if holder is None]
        if unserved:
            raise ServiceUnitNotReady(
                f"root {str(self.layout.root)!r}: no broker serves {', '.join(unserved)}: start one with "
                "'pulsar-spark broker'"
            )
        started = time.monotonic()
        self._requester.ask([{"kind": "keep_alive", "properties": {"receipt": "true"}}])
        return time.monotonic() - started

    def _holders(self) -> list[tuple[str, Holder | None]]:
        """The bundles, as ranges, and the broker of each."""
        layouts = layouts_of(self.layout)
        ranges = bundles_of(self.layout).ranges
        return [(str(served), BundleLease(each, "").holder()) for served, each in zip(ranges, layouts, strict=True)]


def _shown(holder: Holder) -> dict:
    return {"broker": holder.broker_id, "host": holder.host, "pid": holder.pid}
