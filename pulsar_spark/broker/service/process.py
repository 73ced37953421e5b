"""The broker as a process of its own: its Spark session, and the signals that stop it."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

from pyspark.sql import SparkSession

from pulsar_spark.broker.requests.drafts import RoundResult
from pulsar_spark.broker.runner import Broker
from pulsar_spark.broker.service.shared import Shared
from pulsar_spark.protocol.delays.delays import MAX_NUM_BUCKETS
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.starting import announce_start, end_starting
from pulsar_spark.storage.topics.bundles import bundles_of


def run_broker(
    root: str | os.PathLike,
    *,
    spark: SparkSession | None = None,
    on_round: Callable[[RoundResult, float], None] | None = None,
    max_unacked_messages_per_broker: int = 0,
    available_now: bool = False,
    delayed_delivery_max_num_buckets: int = MAX_NUM_BUCKETS,
    housekeeping: bool = True,
) -> None:
    """Serve *root* until SIGTERM or SIGINT, or with *available_now* until nothing is left to do; blocks. If the root
    has several bundles, it shares them with the other brokers. *spark* is the session, by default a new one; for other
    arguments see :class:`Broker`. :class:`BrokerFenced` if another broker took over."""
    announce_start(root)
    session = _start_session(root) if spark is None else spark

    def make(bundle: str, broker_id: str | None = None) -> Broker:
        return Broker(
            session,
            root,
            on_round=on_round,
            available_now=available_now,
            max_unacked_messages_per_broker=max_unacked_messages_per_broker,
            delayed_delivery_max_num_buckets=delayed_delivery_max_num_buckets,
            housekeeping=housekeeping,
            bundle=bundle,
            broker_id=broker_id,
        )

    def broker_of_root() -> "Broker | Shared":
        folders = bundles_of(Layout(root)).folders
        if len(folders) > 1:
            return Shared(root, make, available_now=available_now)
        alone = make(folders[0])
        alone.hand_over_when_asked()
        return alone

    try:
        _serve_until_signalled(broker_of_root)
    finally:
        end_starting(Layout(root))


def _start_session(root: str | os.PathLike) -> SparkSession:
    # Imported here because it looks for Java, which a caller with a session has.
    from pulsar_spark.storage.session import spark_session

    try:
        with _no_signal_for_spark():
            session = spark_session("pulsar-spark broker", for_rounds=True, root=root)
    except BaseException:
        end_starting(Layout(root))
        raise
    _leave_streams_to_us(session)
    return session


def _serve_until_signalled(make: Callable[[], Broker | Shared]) -> None:
    """Serve by the broker that *make* returns, and after each split by another, until SIGTERM or SIGINT."""
    broker, is_stopping = make(), False

    def stop(*_: object) -> None:
        nonlocal is_stopping
        is_stopping = True
        broker.stop()

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while _serve(broker):
            broker = make()
            if is_stopping:  # the signal may have reached only the previous broker
                broker.stop()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _serve(broker: Broker | Shared) -> bool:
    is_up = broker.start()
    if is_up and isinstance(broker, Broker) and len(bundles_of(broker.layout).folders) > 1:
        broker.close()
        return True
    if is_up:
        broker.wait()
    return isinstance(broker, Broker) and broker.is_handed_over


def _leave_streams_to_us(spark: SparkSession) -> None:
    """Silence Spark's logs about ended queries and failed plans, which the broker logs itself."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "a session has a JVM"
    log4j = jvm.org.apache.logging.log4j
    for name in ("sql.execution.streaming", "executor.Executor", "scheduler.TaskSetManager"):
        log4j.core.config.Configurator.setLevel(f"org.apache.spark.{name}", log4j.Level.OFF)


@contextlib.contextmanager
def _no_signal_for_spark() -> Iterator[None]:
    """Let a JVM that is started inside ignore SIGTERM, as pyspark's ignores SIGINT: a signal to the process group stops
    the broker, which ends its JVM. A signal meanwhile is delivered afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
