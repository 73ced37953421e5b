"""Bundles: list and split them."""

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.link.requester import require_root
from pulsar_spark.protocol.topics.bundles import parse_range
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.topics.bundles import bundles_of, layouts_of


class BundleVerbs:
    """Part of ``Admin`` for bundles."""

    layout: Layout

    def bundles(self) -> list[dict]:
        """The bundles in the order of their hash ranges: ``bundle`` (the range), ``path`` of its tables, ``broker``
        that serves it or None, and number of ``topics``."""
        require_root(self.layout)
        names = [str(topic) for namespace in self.layout.namespaces() for topic in self.layout.topics(*namespace)]
        found = []
        for served, layout in zip(bundles_of(self.layout).ranges, layouts_of(self.layout), strict=True):
            holder = BundleLease(layout, "").holder()
            found.append(
                {
                    "bundle": str(served),
                    "path": str(layout.bundle_folder()),
                    "broker": holder and holder.broker_id,
                    "topics": sum(map(served.holds, names)),
                }
            )
        return found

    def split_bundle(self, bundle: str, at: int | None = None) -> list[str]:
        """Split *bundle*, a range of hashes as :meth:`bundles` shows it, at the hash *at* or in the middle, and return
        both parts.

        No message moves. The serving broker hands the bundle over during the split, then continues.
        :class:`NotAllowedError` if it does not, :class:`InvalidConfiguration` for an unknown bundle.
        """
        from pulsar_spark.broker.bundle.split import split_bundle  # here, because it imports all that a round needs

        require_root(self.layout)
        wanted, bundles = parse_range(bundle), bundles_of(self.layout)
        if wanted not in bundles.ranges:
            raise InvalidConfiguration(
                f"bundle {bundle!r} does not exist in this root, which has {', '.join(map(str, bundles.ranges))}"
            )
        folder = bundles.folders[bundles.ranges.index(wanted)]
        return [str(half) for half in split_bundle(Layout(self.layout.root, folder), at)]
