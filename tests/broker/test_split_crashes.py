"""Splits of a bundle that come to no end: killed by SIGKILL at each of their writes, or with the power, after any of
their syncs. What is left is whole or is none, the same split asked for again ends it, and no message or cursor is lost.
``PULSAR_SPARK_KILLS_AT_WRITES`` says how many, a half of it of each kind, spread over all of them."""

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import pulsar_spark as pulsar
from pulsar_spark.broker.bundle.split import split_bundle
from pulsar_spark.errors import NotAllowedError
from pulsar_spark.protocol.topics.bundles import WHOLE, BundleRange
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.durability import write_durability
from pulsar_spark.storage.topics.bundles import add_bundle, bundles_of
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.broker.test_bundles import HIGH, LOW, LOWER, UPPER, both
from tests.support.faults import faults
from tests.support.power import recorded

TRIES = max(2, int(os.environ.get("PULSAR_SPARK_KILLS_AT_WRITES", "12")) // 2)
EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)


class PowerCut(BaseException):
    """Nothing is done any more."""


@pytest.fixture
def used(tmp_path) -> Path:
    """A root with a topic in each half, of each of which two of four messages are acknowledged."""
    (tmp_path / "disk").mkdir()
    root = tmp_path / "disk" / "root"
    with PlainBroker(root), closing(pulsar.Client(f"delta:{root}")) as client:
        for name in (LOW, HIGH):
            consumer, producer = client.subscribe(name, "s", **EARLIEST), client.create_producer(name)
            for number in range(4):
                producer.send(b"%d" % number)
            for _ in range(2):
                consumer.acknowledge(consumer.receive(60_000))
            consumer.close()
    return root


def spread(count: int) -> list[int]:
    """From 1 to *count*, all or :data:`TRIES` of them."""
    tries = min(TRIES, count)
    return sorted({1 + (count - 1) * step // max(1, tries - 1) for step in range(tries)})


def assert_whole_or_none(root: Path, *, is_opened: bool) -> None:
    """A broker of the first bundle, where it *is opened* before, finds what there is; the same split again, where it
    was none, or one that nobody knows yet; then everything is as it was."""
    layout = Layout(root)
    if is_opened:
        with PlainBroker(root, bundle=layout.bundle) as broker:
            assert broker.rounds.bundle.served in (WHOLE, LOWER)
    if len(bundles_of(layout).ranges) == 1:
        assert split_bundle(layout) == (LOWER, UPPER)
    assert bundles_of(layout).ranges == (LOWER, UPPER)
    lower, upper = both(root)
    with lower, upper, closing(pulsar.Client(f"delta:{root}")) as client:
        for name in (LOW, HIGH):
            consumer = client.subscribe(name, "s", **EARLIEST)
            assert [consumer.receive(60_000).data() for _ in range(2)] == [b"2", b"3"]
            with pytest.raises(pulsar.Timeout):
                consumer.receive(50)


def test_killed_at_each_write(used):
    def run(*writes: int) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-m", "tests.broker.mortal_split", str(used), *map(str, writes)],
            capture_output=True,
            text=True,
            timeout=60 + 10 * len(writes),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith("write ")]

    assert run(10_000) == ["write 10000: ended 0"]
    assert_whole_or_none(Path(f"{used}-10000"), is_opened=False)
    writes = spread(writes_of_a_split(used))
    assert run(*writes) == [f"write {write}: killed" for write in writes]
    for number, write in enumerate(writes):
        assert_whole_or_none(Path(f"{used}-{write}"), is_opened=number % 2 == 0)


def writes_of_a_split(root: Path) -> int:
    """How many it makes, but for those of the lease."""
    shutil.copytree(root, f"{root}-counted")
    with faults(first=1 << 30) as counted:
        split_bundle(Layout(f"{root}-counted"))
    return counted.writes - 4


@pytest.mark.default
def test_without_power_after_any_sync(used, tmp_path):
    write_durability(used, "fsync")

    def cut(syncs: int) -> tuple[Path, int]:
        shutil.copytree(used.parent, tmp_path / f"disk-{syncs}")
        count = cut_the_power(tmp_path / f"disk-{syncs}" / "root", tmp_path / f"lost-{syncs}", syncs)
        return tmp_path / f"lost-{syncs}" / "root", count

    whole, count = cut(1 << 30)
    assert bundles_of(Layout(whole)).ranges == (LOWER, UPPER)
    assert_whole_or_none(whole, is_opened=False)
    for number, syncs in enumerate(spread(count)):
        assert_whole_or_none(cut(syncs)[0], is_opened=number % 2 == 0)


def cut_the_power(root: Path, lost: Path, syncs: int) -> int:
    """Split it, and let nothing reach the disk behind so many syncs; what did, at *lost*, and how many there were."""
    done = []
    with recorded(root.parent) as disk, pytest.MonkeyPatch.context() as patch:
        fsync = os.fsync

        def sync(descriptor: int) -> None:
            if len(done) >= syncs:
                raise PowerCut
            fsync(descriptor)
            done.append(descriptor)

        patch.setattr(os, "fsync", sync)
        try:
            split_bundle(Layout(root))
        except PowerCut:
            pass
        disk.lose_power(lost)
    return len(done)


def test_a_split_that_was_decided_is_not_split_once_more_by_asking_again(used, monkeypatch):
    at = 0x40000000
    with monkeypatch.context() as patch:
        patch.setattr("pulsar_spark.broker.bundle.split.add_bundle", lambda layout, served: decided(layout, served))
        split_bundle(Layout(used), at)
    layout = Layout(used)
    assert bundles_of(layout).ranges == (WHOLE,), "it came to no end"
    with pytest.raises(NotAllowedError, match=f"was split into {BundleRange(0, at)} and"):
        split_bundle(layout)
    assert bundles_of(layout).ranges == (BundleRange(0, at), BundleRange(at, WHOLE.upper)), "it is done now"


def decided(layout: Layout, served: BundleRange) -> BundleRange | None:
    """The same that writes nothing where it would be the last step."""
    return None if served != bundles_of(layout).range_of(layout.bundle) else add_bundle(layout, served)
