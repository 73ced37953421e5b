"""A new broker of a process replaces an older one on the same root, so a notebook cell can run again."""

import logging
import threading
import weakref
from typing import TYPE_CHECKING

from pulsar_spark.errors import PulsarSparkError

if TYPE_CHECKING:
    from pulsar_spark.broker.runner import Broker

log = logging.getLogger(__name__)
_lock = threading.Lock()
_started: weakref.WeakValueDictionary[str, "Broker"] = weakref.WeakValueDictionary()


def replace_former(broker: "Broker") -> None:
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
