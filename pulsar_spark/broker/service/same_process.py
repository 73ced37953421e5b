"""A new broker of a process replaces an older one on the same root, so a notebook cell can run again."""

import logging
import threading
import weakref
from typing import Protocol

from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.storage.layout import Layout

log = logging.getLogger(__name__)


class Replaceable(Protocol):
    """A broker as far as another of its process needs it."""

    layout: Layout
    broker_id: str

    @property
    def is_stopping(self) -> bool: ...

    def stop(self) -> None: ...

    def wait(self) -> object: ...


_lock = threading.Lock()
_started: weakref.WeakValueDictionary[str, Replaceable] = weakref.WeakValueDictionary()


def replace_former(broker: Replaceable) -> None:
    """Stop this process's earlier broker of the root, and wait for it."""
    root = str(broker.layout.bundle_folder())
    with _lock:
        former, _started[root] = _started.get(root), broker
    if former is None or former is broker or former.is_stopping:
        return
    log.info("broker %s of this process is replaced by %s", former.broker_id, broker.broker_id)
    former.stop()
    try:
        former.wait()
    except PulsarSparkError as failed:
        log.warning("broker %s had failed: %s", former.broker_id, failed)
