"""A round of which an object store says nothing, and which it takes after all when the broker has gone on."""

import errno

import pulsar_spark as pulsar
from pulsar_spark.storage.store.faults import UnclearWrite
from pulsar_spark.storage.store.object_store import ObjectStore
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.object_store import new_root
from tests.support.waiting import nothing_comes, receive_values, send


def test_a_broker_is_not_fenced_by_a_round_of_its_own(s3, monkeypatch):
    """It is neither lost nor made twice."""
    url, late, put = new_root(), [], ObjectStore.put_if_absent
    is_bad = False

    def put_late(store: ObjectStore, name, content: bytes) -> bool:
        if is_bad and "cursor_ledger" in str(name):
            if not late:
                late.append((name, content))
                raise UnclearWrite(errno.EIO, "no answer", str(name))
            if len(late) == 1:
                late.append(put(store, *late[0]))
        return put(store, name, content)

    monkeypatch.setattr(ObjectStore, "put_if_absent", put_late)
    with PlainBroker(url):
        client = pulsar.Client(f"delta:{url}", operation_timeout_seconds=30)
        consumer = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Shared)
        send(client, "t", "a")
        assert receive_values(consumer, 1) == ["a"]
        is_bad = True
        send(client, "t", *"bcd")
        assert sorted(receive_values(consumer, 3)) == [*"bcd"]
        assert late[1] is True
        assert nothing_comes(consumer)
        client.close()
