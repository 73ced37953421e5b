"""Follow the rows of a whole root, look by look, without opening topics.

Each number is computed in one place: see ``cursor_state`` for subscriptions, ``published`` for what came in.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from operator import attrgetter

from pulsar_spark.storage.delta.python_rows import uncollected
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import Bundles, bundles_of, layouts_of
from pulsar_spark.views.overview.bundle_overview import BundleOverview
from pulsar_spark.views.overview.sums import summed
from pulsar_spark.views.overview.values import (
    BrokerState,
    RootState,
    RoundState,
    SubscriptionState,
    TopicState,
    severity,
)


class Overview:
    """A root as its rounds committed it. Each :meth:`look` reads only what is new.

    Rates are averages over at least *window_seconds*, and the time between two looks. At the first look they are of the
    last minute, and those of acknowledged and dead messages are 0. Bundles of whose brokers *is_read* does not hold are
    left out, but for their brokers. Not for several threads at once.
    """

    def __init__(
        self, layout: Layout, *, window_seconds: float = 10.0, is_read: Callable[[BrokerState], bool] = lambda _: True
    ):
        self._layout, self._window, self._is_read = layout, window_seconds, is_read
        self._bundles: dict[str, BundleOverview] = {}

    @uncollected()
    def look(self, now: datetime | None = None) -> RootState:
        """The root at *now*, by default the present time."""
        now = now or datetime.now(UTC)
        found, layouts = bundles_of(self._layout), {each.bundle: each for each in layouts_of(self._layout)}
        for name in self._bundles.keys() - layouts.keys():
            del self._bundles[name]
        subscriptions: list[SubscriptionState] = []
        topics: list[TopicState] = []
        rounds: list[RoundState] = []
        brokers: list[BrokerState] = []
        for name, layout in layouts.items():
            bundle = self._bundles.get(name)
            if bundle is None:
                bundle = self._bundles[name] = BundleOverview(layout, self._window)
            broker = bundle.broker()
            if self._is_read(broker):
                bundle.catch_up(now)
                is_its = _is_of(found, name)
                broker = bundle.broker()
                subscriptions += bundle.subscriptions(now, is_its, is_served=broker.is_serving)
                topics += bundle.topics(is_its)
                rounds += bundle.take_rounds()
            brokers.append(broker)
        subscriptions.sort(key=severity)
        totals = list(summed(subscriptions))
        if totals and totals[-1].partition is None:
            totals.sort(key=severity)
        return RootState(
            now,
            tuple(sorted(topics, key=attrgetter("topic", "partition"))),
            tuple(subscriptions),
            tuple(totals),
            tuple(rounds),
            tuple(brokers),
        )


def _is_of(bundles: Bundles, folder: str) -> Callable[[str], bool]:
    """Whether a topic is of the bundle in *folder*: split bundles share the rows before the split."""
    if len(bundles.folders) == 1:
        return lambda topic: True
    return lambda topic: bundles.folder_of(topic) == folder
