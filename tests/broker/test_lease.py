"""The lease of a bundle: one holder, taken over when it ends or its process is gone."""

import subprocess
import sys

from pulsar_spark.storage import lease as lease_module
from pulsar_spark.storage import lease_file
from pulsar_spark.storage.lease import BundleLease


def test_a_lease_has_one_holder_until_it_lets_go(layout):
    first, second = BundleLease(layout, "first"), BundleLease(layout, "second")
    assert first.take() and first.take()
    assert not second.take()
    assert second.holder().broker_id == "first"
    second.let_go()
    assert not second.take(), "only the holder may end its lease"
    first.let_go()
    assert second.take()


def test_a_lease_that_ran_out_is_free(layout, monkeypatch):
    first, second = BundleLease(layout, "first"), BundleLease(layout, "second")
    first.take()
    later = lease_file.time.time() + lease_module.LEASE_SECONDS + 1
    monkeypatch.setattr(lease_file.time, "time", lambda: later)
    assert second.take()
    assert not first.take()


def test_the_lease_of_a_process_that_is_gone_is_free_at_once(layout):
    code = (
        "import sys; from pulsar_spark.storage.lease import BundleLease; from pulsar_spark.storage.layout import "
        "Layout; "
        "print(BundleLease(Layout(sys.argv[1]), 'gone').take())"
    )
    said = subprocess.run([sys.executable, "-c", code, str(layout.root)], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "True"
    assert BundleLease(layout, "next").take()


def test_a_broken_lease_file_holds_nothing(layout):
    lease = BundleLease(layout, "first")
    lease.path.write_text("{")
    assert lease.holder() is None
    assert lease.take()
