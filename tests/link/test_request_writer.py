"""Clients leave requests behind, and the broker who follows them leaves what makes their table quick to open."""

import errno
import json
import threading

import pyarrow as pa
import pytest

from pulsar_spark.errors import ConnectError
from pulsar_spark.link import request_writer
from pulsar_spark.link.request_writer import RequestWriter
from pulsar_spark.storage.delta import checkpoints
from pulsar_spark.storage.delta.checkpoints import last_checkpoint
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import prepare_root
from pulsar_spark.table_specs import REQUESTS
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.faults import FULL, faults
from tests.support.waiting import eventually


def test_a_client_makes_no_checkpoint_of_requests_and_the_broker_does(layout, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_EVERY", 5)
    prepare_root(layout)
    path, writer = layout.broker_table(REQUESTS.name), RequestWriter(layout, lambda: True)
    for number in range(7):
        assert writer.write([dict(request_id=f"a{number}", kind="flow")]) == number + 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint")]
    assert last_checkpoint(path) == (0, 0, 0)
    with PlainBroker(layout.root) as broker:
        eventually(lambda: last_checkpoint(path)[0] == 7)
        for number in range(9):
            writer.write([dict(request_id=f"b{number}", kind="flow")])
        eventually(lambda: broker.rounds.bundle.requests_version == 16)
        eventually(lambda: last_checkpoint(path)[0] >= 10)
    told = json.loads((path / "_delta_log" / "_last_checkpoint").read_text())
    assert told["size"] >= told["version"]
    assert dataset_of(path).to_table().num_rows == 16


def test_what_clients_of_a_process_ask_for_meanwhile_goes_into_one_commit(layout, monkeypatch):
    prepare_root(layout)
    first, *others = (RequestWriter(layout, lambda: True) for _ in range(4))
    is_writing, may_end, versions = threading.Event(), threading.Event(), {}
    append = first._table._table.append

    def slow(rows, wait):
        is_writing.set()
        may_end.wait(60)
        return append(rows, wait)

    monkeypatch.setattr(first._table._table, "append", slow)

    def write(name: str, writer: RequestWriter) -> None:
        versions[name] = writer.write([dict(request_id=f"{name}-{number}", kind="flow") for number in range(2)])

    threads = [threading.Thread(target=write, args=("a", first))]
    threads[0].start()
    is_writing.wait(60)
    threads += [threading.Thread(target=write, args=(name, writer)) for name, writer in zip("bcd", others)]
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: len(first._table._waiting) == 3)
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert versions == {"a": 1, "b": 2, "c": 2, "d": 2}
    assert dataset_of(first.path).to_table().num_rows == 8


def test_a_commit_of_several_is_given_up_when_none_of_them_goes_on(layout, monkeypatch):
    """What was tried may be there: who tries again without the others would not find it."""
    monkeypatch.setattr(request_writer, "RETRY_SECONDS", 0.0)
    prepare_root(layout)
    tries, ending = [], {"a": False, "b": False}
    writers = {name: RequestWriter(layout, lambda name=name: ending[name]) for name in ending}
    table = writers["a"]._table

    def fail(self, rows, *more):
        tries.append(rows.num_rows)
        ending["a"], ending["b"] = len(tries) > 2, len(tries) > 4
        raise OSError(errno.EIO, "the disk is away")

    monkeypatch.setattr(AppendTable, "append", fail)
    parts = [request_writer._Part([dict(request_id=name, kind="flow")], writers[name]._is_ending) for name in ending]
    table._write(parts)
    assert tries == [2] * 5 and all(isinstance(part.error, ConnectError) for part in parts)


def test_who_ends_does_not_wait_for_others_who_try_again_what_came_before(layout):
    """What it asked for is in no commit, since nobody had tried it."""
    prepare_root(layout)
    ends, versions = threading.Event(), []
    stays, leaves = RequestWriter(layout, lambda: False), RequestWriter(layout, ends.is_set)
    thread = threading.Thread(
        target=lambda: versions.append(stays.write([dict(request_id="a", kind="flow")])), name="stays"
    )
    with faults(FULL, first=1, count=10**6, threads={"stays"}) as disk:
        thread.start()
        eventually(lambda: disk.raised)
        ends.set()
        with pytest.raises(ConnectError, match="No space left on device"):
            leaves.write([dict(request_id="b", kind="flow")])
        assert thread.is_alive()
    thread.join(60)
    assert versions == [1]
    assert dataset_of(stays.path).to_table()["request_id"].to_pylist() == ["a"]


def test_rows_that_cannot_be_stored_are_in_nobody_else_s_commit(layout, monkeypatch):
    prepare_root(layout)
    first, second, broken = (RequestWriter(layout, lambda: False) for _ in range(3))
    is_writing, may_end, found = threading.Event(), threading.Event(), []
    append = first._table._table.append

    def slow(rows, wait):
        is_writing.set()
        may_end.wait(60)
        return append(rows, wait)

    monkeypatch.setattr(first._table._table, "append", slow)
    threads = [threading.Thread(target=first.write, args=([dict(request_id="a", kind="flow")],))]
    threads[0].start()
    is_writing.wait(60)
    threads.append(threading.Thread(target=lambda: found.append(second.write([dict(request_id="b", kind="flow")]))))
    threads[1].start()
    eventually(lambda: len(first._table._waiting) == 1)
    for row in (dict(request_id="c", kind="\ud800"), dict(request_id="c", kind="flow", permits="many")):
        with pytest.raises((ValueError, pa.ArrowException)):
            broken.write([row])
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert found == [2]


def test_who_gives_up_at_once_does_so_though_others_go_on(layout, monkeypatch):
    monkeypatch.setattr(request_writer, "RETRY_SECONDS", 0.0)
    prepare_root(layout)
    is_ending, has_failed = threading.Event(), threading.Event()
    client, asker = RequestWriter(layout, is_ending.is_set), RequestWriter(layout, None)

    def fail(self, rows, *more):
        has_failed.set()
        raise OSError(errno.ENOSPC, "the disk is full")

    monkeypatch.setattr(AppendTable, "append", fail)
    trying = threading.Thread(target=_fails, args=(client,))
    trying.start()
    has_failed.wait(60)
    asking = threading.Thread(target=_fails, args=(asker,), daemon=True)
    asking.start()
    asking.join(60)
    assert not asking.is_alive() and trying.is_alive()
    is_ending.set()
    trying.join(60)


def _fails(writer: RequestWriter) -> None:
    with pytest.raises(ConnectError):
        writer.write([dict(request_id="a", kind="flow")])
