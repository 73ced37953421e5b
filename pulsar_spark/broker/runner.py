"""The broker: one streaming query per bundle, whose micro-batches run rounds.

While another broker has the lease, this one stands by; once replaced, it stops. If the disk is full or fails, it drops
the round under way and waits. Other failures end it and are raised by :meth:`Broker.wait`.
"""

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from pyspark.sql import SparkSession

from pulsar_spark.broker.bundle.clock import steady_micros
from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.broker.delays.delay_index import DelayIndex
from pulsar_spark.broker.planning.planner import Planner
from pulsar_spark.broker.requests.drafts import RoundResult
from pulsar_spark.broker.round.rounds import Rounds
from pulsar_spark.broker.service.backoff import Backoff, Waits
from pulsar_spark.broker.service.lease_keeper import LeaseKeeper, new_broker_id, remove_stale_folders
from pulsar_spark.broker.service.micro_batches import MAY_PASS, MicroBatches
from pulsar_spark.broker.service.same_process import replace_former
from pulsar_spark.broker.service.stream import Stream
from pulsar_spark.broker.upkeep.side_work import SideWork
from pulsar_spark.described import Described
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.delays.delays import MAX_NUM_BUCKETS
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.layout import DEFAULT_BUNDLE, Layout
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.processes.starting import QUERY, begin_starting, end_starting
from pulsar_spark.storage.session import check_context
from pulsar_spark.storage.store.away import left_root
from pulsar_spark.storage.topics.bundles import add_bundle, bundles_of
from pulsar_spark.storage.topics.topics import prepare_root

STOP_SECONDS = 60.0
log = logging.getLogger(__name__)


def _check(spark: SparkSession | None, most_unacked: int, most_buckets: int) -> None:
    if spark is not None:
        check_context(spark, "a broker")
    if most_unacked < 0:
        raise InvalidConfiguration(f"max_unacked_messages_per_broker {most_unacked!r}: give a number, 0 for no limit")
    if most_buckets < 1:
        raise InvalidConfiguration(f"delayed_delivery_max_num_buckets {most_buckets!r}: give a number from 1 on")


def _layout(root: str | os.PathLike, bundle: str | None) -> Layout:
    layout = Layout(root, bundle or DEFAULT_BUNDLE)
    count = len(bundles_of(layout).folders)
    if bundle is None and count > 1:
        raise InvalidConfiguration(
            f"root {str(root)!r} has {count} bundles, and a Broker serves only one: run 'pulsar-spark broker' "
            "or run_broker for all of them, or give bundle="
        )
    return layout


class Broker(Described):
    """Serves one bundle of a root on a Spark session until it is stopped.

    ``start`` returns when the broker serves; ``run_broker`` blocks instead. The end of a ``with`` block closes it.

    - ``spark``, ``root``: the session that runs the rounds, and the folder or URL that is served.
    - ``max_unacked_messages_per_broker``: a limit over all Shared and Key_Shared subscriptions. Above it, those with
      the most unacknowledged messages get no new ones. 0: no limit.
    - ``available_now``: stop when no work is left and no client is connected. Messages that wait for a time stay.
    - ``delayed_delivery_max_num_buckets``: the most buckets of the delay index.
    - ``housekeeping``: keep tables small in the background, and sample activity once a minute.
    - ``bundle``: the folder of the bundle, required if the root has several.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: str | os.PathLike,
        *,
        now: Callable[[], int] = now_micros,
        on_round: Callable[[RoundResult, float], None] | None = None,
        max_unacked_messages_per_broker: int = 0,
        available_now: bool = False,
        delayed_delivery_max_num_buckets: int = MAX_NUM_BUCKETS,
        housekeeping: bool = True,
        bundle: str | None = None,
        broker_id: str | None = None,
    ):
        _check(spark, max_unacked_messages_per_broker, delayed_delivery_max_num_buckets)
        self.delayed_delivery_max_num_buckets, self._keeps_house = delayed_delivery_max_num_buckets, housekeeping
        self.max_unacked_messages_per_broker = max_unacked_messages_per_broker
        self.spark, self.layout, self.now = spark, _layout(root, bundle), now
        self.broker_id = broker_id or new_broker_id()
        self._side_work = SideWork(self.layout, spark, self.broker_id)
        self.failure: BaseException | None = None
        self._stopping, self._closing = threading.Event(), threading.Lock()
        waits = Waits(self.broker_id)
        self._lease_keeper = LeaseKeeper(self.layout, self.broker_id, self._stopping, waits, self._fail)
        self._while_standing_by: Callable[[], None] = lambda: None
        self.is_handed_over = False  # to another process, for a split
        self._planner = Planner(spark, self.layout.local_folder() / "inputs" / self.broker_id)
        self._disk = Backoff(self._stopping, waits, "its root cannot be read and written")
        self._batches = MicroBatches(
            spark,
            self.layout,
            now,
            self._planner.folder,
            on_round,
            self._stopping,
            self._disk,
            waits,
            self._fail,
            available_now=available_now,
        )
        self._stream = Stream(
            spark,
            self.layout.checkpoint() / self.broker_id,
            self.broker_id,
            self._batches,
            self._stopping,
            waits,
            self._fail,
            self._starts_query_again,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if self.failure is not None and kind is None:
            raise self.failure

    def _facts(self) -> dict[str, object]:
        has_rounds = hasattr(self._batches, "rounds")
        state = "stopped" if self._stopping.is_set() else "serving" if has_rounds else "not serving"
        facts: dict[str, object] = {"root": str(self.layout.root), "bundle": self.layout.bundle, "state": state}
        if has_rounds:
            facts |= {"round": self.rounds.bundle.round, "subscriptions": len(self.rounds.bundle.cursors)}
        return facts | ({"failure": type(self.failure).__name__} if self.failure else {})

    def go_on_with(self, lease: BundleLease) -> None:
        """Call before :meth:`start`: take the bundle over with *lease*, which has watched the broker that serves the
        bundle. In an object store, nothing else shows that this broker is gone."""
        self._lease_keeper.go_on_with(lease)

    def hand_over_when_asked(self) -> None:
        """Call before :meth:`start`: let another process take the bundle over for a split. The broker then stops with
        :attr:`is_handed_over`."""
        bundles = bundles_of(self.layout)

        def end_if_split() -> None:
            with contextlib.suppress(OSError):  # it stands by until the disk can be read
                if bundles_of(self.layout) != bundles:
                    self._hand_over()

        self._lease_keeper.hand_over_by(self._hand_over)
        self._while_standing_by = end_if_split

    def _hand_over(self) -> None:
        if not self._stopping.is_set():
            log.info("broker %s hands over a bundle of %s that is being split", self.broker_id, self.layout.root)
            self.is_handed_over = True
            self._stopping.set()

    def start(self, standby_seconds: float | None = None) -> bool:
        """Take the bundle over, standing by while another broker serves it, and start the query; False if stopped or
        out of time before. It replaces a broker of this process on the same root; with *standby_seconds* it stands by
        for that one, too."""
        atexit.register(self.close)
        if standby_seconds is None:
            replace_former(self)
        try:
            is_ready = self._patiently(lambda: prepare_root(self.layout))
            begin_starting(self.layout)
            is_serving = False
            with ThreadPoolExecutor(1, "pulsar-spark-warm-up") as pool:
                warming = pool.submit(self._patiently, self._planner.warm_up)
                warming.add_done_callback(lambda done: self._stopping.set() if done.exception() else None)
                if is_ready and self._lease_keeper.begin(standby_seconds, self._stand_by):
                    begin_starting(self.layout)
                    remove_stale_folders(self.layout, self.broker_id)
                    is_serving = self._patiently(self._take_over) and self._patiently(self._stream.start)
            if warming.result() and is_serving:
                threading.Thread(target=self._supervise, name="broker-supervisor", daemon=True).start()
                if self._keeps_house:
                    self._side_work.keep_house(self.rounds.note_housekeeping)
                    self._side_work.sample(self.rounds, self._batches.lock)
                self._side_work.compact()
                end_starting(self.layout)
                log.info("broker %s serves %s", self.broker_id, self.layout.root)
                return True
        except BaseException:
            self.close()
            raise
        finally:
            end_starting(self.layout)
        if self._stopping.is_set():
            self.close()
        return False

    def _stand_by(self) -> None:
        end_starting(self.layout)
        self._while_standing_by()

    def _starts_query_again(self, is_so: bool) -> None:
        if is_so:
            begin_starting(self.layout, QUERY)
        else:
            end_starting(self.layout)

    @property
    def rounds(self) -> Rounds:
        """Its rounds, after the take-over."""
        return self._batches.rounds

    @property
    def is_stopping(self) -> bool:
        """Whether it was stopped or has failed."""
        return self._stopping.is_set()

    def has_news(self) -> bool:
        """Are there requests or publishes that no round has read yet? Also after the end."""
        return self._batches.has_news()

    def stop(self) -> None:
        """Stop after the round under way. Safe twice, and in a signal handler."""
        self._stopping.set()

    def wait(self, timeout_seconds: float | None = None) -> None:
        """Block until stopped, or for *timeout_seconds*; raises the failure."""
        if not self._stopping.wait(timeout_seconds):
            return
        self.close()
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Stop, and return when the round, the query and the lease have ended. Safe twice."""
        self._stopping.set()
        with self._closing:
            atexit.unregister(self.close)
            self._batches.wait(STOP_SECONDS)
            self._stream.stop()
            self._planner.end()
            self._side_work.close()
            self._lease_keeper.end()
            self._batches.end()
            left_root(self.layout)

    def _fail(self, failure: BaseException) -> None:
        self.failure = self.failure or failure
        self._stopping.set()

    def _patiently(self, step: Callable[[], object]) -> bool:
        while not self._stopping.is_set():
            try:
                step()
            except MAY_PASS as fault:
                self._disk.wait_for_disk(fault)
            else:
                self._disk.end()
                return True
        return False

    def _supervise(self) -> None:
        try:
            self._stream.supervise()
        finally:
            self.close()

    def _take_over(self) -> None:
        index = DelayIndex(self.layout, is_attended=True)
        rounds = Rounds(
            load_bundle(self.layout, index),
            self._planner.run,
            self.now,
            self.broker_id,
            max_unacked_messages_per_broker=self.max_unacked_messages_per_broker,
            steady=steady_micros if self.now is now_micros else None,
        )
        rounds.take_over()
        add_bundle(self.layout, rounds.bundle.served)
        self._batches.rounds = rounds
        self._side_work.index_delays(index, self.delayed_delivery_max_num_buckets)
