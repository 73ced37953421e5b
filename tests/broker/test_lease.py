"""The lease of a bundle: one holder, taken over when it ends or its process is gone."""

import json
import os
import subprocess
import sys
import time

import pytest

from pulsar_spark.broker.service.lease_keeper import STALE_SECONDS, remove_stale_folders
from pulsar_spark.storage.processes import lease as lease_module
from pulsar_spark.storage.processes import lease_file
from pulsar_spark.storage.processes.lease import BundleLease


def test_a_lease_has_one_holder_until_it_lets_go(layout):
    first, second = BundleLease(layout, "first"), BundleLease(layout, "second")
    assert first.take() and first.take()
    assert not second.take()
    assert second.holder().broker_id == "first"
    second.release()
    assert not second.take(), "only the holder may end its lease"
    first.release()
    assert second.take()


@pytest.mark.local_disk
def test_a_lease_that_ran_out_is_free(layout, monkeypatch):
    first, second = BundleLease(layout, "first"), BundleLease(layout, "second")
    first.take()
    later = lease_file.time.time() + lease_module.LEASE_SECONDS + 1
    monkeypatch.setattr(lease_file.time, "time", lambda: later)
    assert second.take()
    assert not first.take()


@pytest.mark.local_disk
def test_the_lease_of_a_process_that_is_gone_is_free_at_once(layout):
    code = (
        "import sys; from pulsar_spark.storage.layout import Layout; "
        "from pulsar_spark.storage.processes.lease import BundleLease; "
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


def test_a_lease_that_is_wanted_is_the_other_s_when_its_holder_hands_it_over(layout):
    first, second, third = (BundleLease(layout, name) for name in ("first", "second", "third"))
    assert not second.request(), "nobody has it"
    first.take()
    assert second.request() and second.request()
    assert not third.request(), "another has asked"
    assert first.take(hands_over=True) and first.is_wanted
    assert second.has_requested(second.holder()) and second.holder().broker_id == "first"
    assert not second.take() and not third.take()
    first.release()
    assert not third.take() and not first.take()
    assert second.holder().broker_id == "second"
    assert second.take(hands_over=True) and not second.is_wanted
    second.release()
    assert third.take()


def test_who_does_not_hand_over_renews_a_lease_without_the_wish(layout):
    first, second = BundleLease(layout, "first"), BundleLease(layout, "second")
    first.take()
    second.request()
    assert first.take() and not first.is_wanted
    assert not second.has_requested(second.holder())
    first.release()
    assert second.holder() is None


def test_who_wants_a_lease_no_more_does_not_get_it(layout):
    first, second = BundleLease(layout, "first"), BundleLease(layout, "second")
    first.take()
    second.request()
    second.withdraw()
    assert first.take(hands_over=True) and not first.is_wanted
    first.release()
    assert second.holder() is None


def test_a_lease_that_nobody_wants_says_what_it_always_said(layout):
    """Releases that know of no wishes read one with anything else in it as none."""
    first, second = BundleLease(layout, "first"), BundleLease(layout, "second")
    for change in (
        first.take,
        second.request,
        first.take,
        second.request,
        second.withdraw,
        second.request,
        first.release,
    ):
        change()
    assert second.take()
    assert json.loads(first.path.read_text()).keys() == {"broker_id", "host", "pid", "until"}


@pytest.mark.local_disk
def test_a_lease_that_was_handed_over_to_a_process_that_is_gone_is_free(layout):
    first = BundleLease(layout, "first")
    first.take()
    code = (
        "import sys; from pulsar_spark.storage.layout import Layout; "
        "from pulsar_spark.storage.processes.lease import BundleLease; "
        "print(BundleLease(Layout(sys.argv[1]), 'gone').request())"
    )
    said = subprocess.run([sys.executable, "-c", code, str(layout.root)], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "True"
    first.take(hands_over=True)
    first.release()
    assert BundleLease(layout, "next").take()


def test_what_a_broker_has_just_written_stays_beside_one_that_begins(layout):
    """Two that share bundles prepare their plans at the same time: who has the bundle first must not take the inputs of
    the other."""
    inputs, old = layout.local_folder() / "inputs", time.time() - STALE_SECONDS - 60
    for broker_id in ("gone", "starting", "mine"):
        file = inputs / broker_id / "interpreted" / "inputs-65536.parquet"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"rows")
        if broker_id != "starting":
            for path in (file, file.parent, file.parent.parent):
                os.utime(path, (old, old))
    remove_stale_folders(layout, "mine")
    assert sorted(os.listdir(inputs)) == ["mine", "starting"]
