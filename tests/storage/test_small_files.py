"""Small JSON files of a root that are none: whoever meets one says so and goes on as without it, and what lay there is
kept beside by whoever writes next."""

import contextlib
import json
import os
import shutil
import time

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.errors import CorruptState
from pulsar_spark.storage.delta.checkpoints import last_checkpoint
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.layout import BUNDLES, Layout
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.store.durability import read_durability, settings_path, write_durability
from pulsar_spark.storage.topics.bundles import bundles_of
from pulsar_spark.storage.topics.exclusive import _APPLICATION, ExclusiveClaim
from pulsar_spark.storage.topics.producers import connected
from pulsar_spark.storage.topics.topics import prepare_root
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.object_store import new_root

FOLDER, PIPE, LOOP = object(), object(), object()
LEASE = {"broker_id": "b", "host": "h", "pid": 1, "until": 2_000_000_000.0, "epoch": 3, "owner": "o"}
LEASE |= {"producer_name": "p", "name": "p", "partitions": [-1], "is_waiting": False, "boot": "b"}


def lease(**changed):
    return json.dumps(LEASE | changed).encode()


JUNK = {
    "empty": b"",
    "half": b'{"broker_id": "b", "host"',
    "null": b"null",
    "list": b"[1]",
    "text": b'"lease"',
    "number": b"1e400",
    "object": b"{}",
    "not utf-8": b"\xff\xfe\x00{",
    "nested": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "long number": b'{"until": ' + b"9" * 5000 + b"}",
    "zeros": b"\0" * 100,
    "large": b" " * (2 << 20),
    "until infinite": lease(until=float("inf")),
    "until nan": lease(until=float("nan")),
    "until negative": lease(until=-1),
    "until huge": lease(until=10**30),
    "until a text": lease(until="2030-01-01"),
    "until null": lease(until=None),
    "until true": lease(until=True),
    "until an object": lease(until={}),
    "pid huge": lease(pid=1 << 70),
    "pid of no process": lease(pid=1 << 31),
    "pid zero": lease(pid=0),
    "pid negative": lease(pid=-1),
    "pid a text": lease(pid="1"),
    "pid a fraction": lease(pid=1.5),
    "broker a number": lease(broker_id=7, owner=7, name=7),
    "host a list": lease(host=["h"]),
    "half a character": lease(broker_id="\ud800", owner="\ud800", name="\ud800"),
    "wanted a text": lease(wanted="me"),
    "wanted half": lease(wanted={"broker_id": "x"}),
}
ON_A_DISK = {**JUNK, "folder": FOLDER, "pipe": PIPE, "loop": LOOP}
EACH = pytest.mark.parametrize("junk", ON_A_DISK.values(), ids=ON_A_DISK)


def put(path, junk) -> None:
    """Let *junk* lie there instead of whatever does."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if junk is FOLDER:
        (path / "within").mkdir(parents=True)
    elif junk is PIPE:
        os.mkfifo(path)
    elif junk is LOOP:
        path.symlink_to(path)
    else:
        path.write_bytes(junk)


def kept(path) -> list[str]:
    return [name for name in (each.name for each in path.parent.iterdir()) if name.startswith(f"{path.name}.broken-")]


@EACH
def test_a_lease_that_is_none_is_said_kept_aside_and_free(tmp_path, junk, caplog):
    prepare_root(layout := Layout(tmp_path))
    first = BundleLease(layout, "first")
    put(first.path, junk)
    assert [first.holder() for _ in range(3)] == [None] * 3
    assert [record.message.count("lease.json") for record in caplog.records] == [1], "said once"
    assert not first.request(), "of whom nobody is there to be asked"
    assert not kept(first.path)
    assert first.take() and BundleLease(layout, "second").holder().broker_id == "first"
    (aside,) = kept(first.path)
    lies_there = first.path.with_name(aside)
    assert lies_there.is_dir() if junk is FOLDER else lies_there.is_fifo() if junk is PIPE else True
    assert not isinstance(junk, bytes) or lies_there.read_bytes() == junk
    first.release()
    assert BundleLease(layout, "second").take() and len(kept(first.path)) == 1


def test_a_lease_in_a_store_that_is_none_is_kept_aside_and_free(in_store, caplog):
    prepare_root(layout := Layout(new_root()))
    lease = BundleLease(layout, "first")
    for number, (name, junk) in enumerate(each for each in JUNK.items() if each[0] != "large"):
        lease.path.write_bytes(junk)
        caplog.clear()
        assert BundleLease(layout, "second").holder() is None, name
        assert "lease.json" in caplog.text, name
        assert lease.take(), name
        assert lease.holder().broker_id == "first"
        assert len(kept(lease.path)) == number + 1, name


def test_a_lease_with_more_in_it_than_is_known_is_one(layout):
    put(BundleLease(layout, "").path, lease(until=time.time() + 9, since=1))
    assert BundleLease(layout, "first").holder().broker_id == "b"


@EACH
def test_settings_that_are_none_stop_nobody(tmp_path, junk, caplog):
    prepare_root(layout := Layout(tmp_path))
    put(settings_path(layout.root), junk)
    assert [read_durability(layout.root) for _ in range(3)] == ["fsync"] * 3
    assert [record.message.count("settings.json") for record in caplog.records] == [1]
    (found,) = Admin(f"delta:{tmp_path}").doctor()
    assert found["command"] == "pulsar-spark durability set fsync"
    write_durability(layout.root, "none")
    assert read_durability(layout.root) == "none" and len(kept(settings_path(layout.root))) == 1
    assert Admin(f"delta:{tmp_path}").doctor() == []


@EACH
def test_bundles_that_are_none_are_said_by_name(tmp_path, junk):
    prepare_root(layout := Layout(tmp_path))
    put(tmp_path / BUNDLES / "bundles.json", junk)
    for _ in range(2):
        with pytest.raises(CorruptState, match=r"bundles.json' cannot be read .*restore it from a backup"):
            bundles_of(layout)


@pytest.mark.local_disk
@EACH
def test_a_claim_that_is_none_is_nobody_s_and_epochs_go_on(layout, junk):
    with contextlib.closing(pulsar.Client(f"delta:{layout.root}")) as client:
        client.create_producer("t", access_mode=pulsar.ProducerAccessMode.Exclusive).close()
        client.create_producer("t", access_mode=pulsar.ProducerAccessMode.Exclusive).close()
    table = layout.namespace("public", "default") / "t"
    first, second = (ExclusiveClaim(table, "t", name) for name in ("first", "second"))
    put(table / "_exclusive_producer.json", junk)
    first.check()
    assert first.holder() is None
    assert first.take() and not second.take()
    assert open_table(table).transaction_version(_APPLICATION) == 3
    first.renew()
    assert second.holder() == "first"


@pytest.mark.parametrize("name", ["empty", "list", "nested", "until infinite", "pid huge", "folder", "pipe"])
def test_a_root_in_which_no_small_file_is_one_serves_and_is_served(tmp_path, name):
    junk = ON_A_DISK[name]
    prepare_root(layout := Layout(tmp_path))
    with contextlib.closing(pulsar.Client(f"delta:{tmp_path}")) as client:
        client.create_producer("t").send(b"before", partition_key="k")
    table, bundle = layout.namespace("public", "default") / "t", layout.bundle_folder()
    for folder in (table / "_producers", bundle / "clients", tmp_path / BUNDLES / "brokers", bundle / "announced"):
        folder.mkdir(exist_ok=True)
        put(folder / "0123456789abcdef.json", junk)
    for path in (bundle / "lease.json", settings_path(tmp_path), table / "_compaction"):
        put(path, junk)
    if junk is not PIPE:  # which deltalake would wait for
        put(table / "_delta_log/_last_checkpoint", junk)
    assert last_checkpoint(table) == (0, 0, 0)
    assert {each.name for each in connected(table)} <= {"p"}
    with PlainBroker(tmp_path), contextlib.closing(pulsar.Client(f"delta:{tmp_path}")) as client:
        admin = Admin(f"delta:{tmp_path}")
        assert admin.compaction_status("t")["status"] == "NOT_RUN"
        admin.compact("t")
        assert admin.compaction_status("t")["status"] == "SUCCESS"
        consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
        client.create_producer("t").send(b"now")
        received = [consumer.receive(60_000) for _ in range(2)]
        assert [message.data() for message in received] == [b"before", b"now"]
        assert admin.stats("t")["msgInCounter"] == 2
    assert TableLog(table).latest() >= 2
