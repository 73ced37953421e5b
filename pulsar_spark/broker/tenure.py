"""A broker's time in office: standing by while another broker holds the lease, taking it, renewing it, giving it
back."""

import logging
import threading
import time
from collections.abc import Callable

from pulsar_spark.broker.patience import Patience, Waits
from pulsar_spark.errors import BrokerFenced
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.lease import LEASE_SECONDS, BundleLease

LOOK_SECONDS = 0.2
JOIN_SECONDS = 5.0
log = logging.getLogger(__name__)


class Tenure:
    """The lease of one broker. *fail* is told of a :class:`BrokerFenced` when another broker has taken it."""

    def __init__(
        self, layout: Layout, broker_id: str, stopping: threading.Event, waits: Waits, fail: Callable[[Exception], None]
    ):
        self._root, self._broker_id, self._stopping = layout.root, broker_id, stopping
        self._waits, self._fail = waits, fail
        self._lease = BundleLease(layout, broker_id)
        self._thread: threading.Thread | None = None

    def begin(self, standby_seconds: float | None) -> bool:
        """Take the lease and keep it; False if stopped or out of time before. Says for whom the broker stands by, and
        when it takes over."""
        waited_since, stood_by_for = time.monotonic(), None
        patience = Patience(self._stopping, self._waits, "its lease cannot be taken")
        while not self._take(patience):
            if self._stopping.is_set() or (
                standby_seconds is not None and time.monotonic() - waited_since > standby_seconds
            ):
                return False
            holder = self._lease.holder()
            if holder is not None and holder.broker_id != stood_by_for:
                stood_by_for = holder.broker_id
                log.info(
                    "broker %s stands by: %s serves %s (process %d on %s)",
                    self._broker_id,
                    holder.broker_id,
                    self._root,
                    holder.pid,
                    holder.host,
                )
            self._stopping.wait(LOOK_SECONDS)
        if stood_by_for:
            log.info("broker %s takes over %s from %s", self._broker_id, self._root, stood_by_for)
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()
        return True

    def end(self) -> None:
        """Give the lease back; the broker is stopping."""
        if self._thread is None:
            return
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_SECONDS)
        try:
            self._lease.let_go()
        except OSError as failed:
            log.warning(
                "the lease of %s could not be given back, it ends by itself in %g s: %s",
                self._root,
                LEASE_SECONDS,
                failed,
            )

    def _take(self, patience: Patience) -> bool:
        try:
            is_ours = self._lease.take()
        except OSError as fault:
            patience.bear(fault)
            return False
        patience.end()
        return is_ours

    def _renew(self) -> None:
        """Renew it until the broker stops. Where the file cannot be written it may run out; what keeps two brokers
        apart is the fence of a round's commit."""
        patience = Patience(self._stopping, self._waits, "its lease cannot be renewed")
        while not self._stopping.wait(0 if patience.is_waiting else LEASE_SECONDS / 4):
            try:
                is_ours = self._lease.take()
            except OSError as fault:
                patience.pause(fault)  # whatever it is: a thread that ended would let the lease run out without a word
                continue
            patience.end()
            if not is_ours:
                self._fail(BrokerFenced(f"another broker holds the lease of {str(self._root)!r}"))
