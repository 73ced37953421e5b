"""A broker whose lease another has taken is told so, whether or not it has anything to commit."""

import threading

import pytest

from pulsar_spark.broker.service import lease_keeper
from pulsar_spark.broker.service.backoff import Waits
from pulsar_spark.broker.service.lease_keeper import LeaseKeeper
from pulsar_spark.errors import BrokerFenced
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.topics.topics import prepare_root
from tests.support.waiting import eventually


@pytest.mark.local_disk
def test_an_idle_broker_ends_when_another_has_its_lease(tmp_path, monkeypatch):
    monkeypatch.setattr(lease_keeper, "LEASE_SECONDS", 0.04)
    layout, told, stopping = Layout(tmp_path / "root"), [], threading.Event()
    prepare_root(layout)
    ours, theirs = BundleLease(layout, "ours"), BundleLease(layout, "theirs")
    served = LeaseKeeper(layout, "ours", stopping, Waits("ours"), told.append)
    assert served.begin(standby_seconds=0)

    def is_taken() -> bool:
        ours.release()  # as if it had run out while the machine slept
        return theirs.take()

    eventually(is_taken)
    eventually(lambda: told)
    stopping.set()
    served.end()
    assert isinstance(told[0], BrokerFenced) and theirs.holder().broker_id == "theirs"
