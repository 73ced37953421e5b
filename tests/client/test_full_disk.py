"""Clients whose disk refuses writes: they try until their timeout, then say so; what returned is there once, and no
half-written file stays."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.repair.examination import named_files
from pulsar_spark.storage.store.durability import write_durability
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from tests.support.faults import FULL, READ_ONLY, faults

pytestmark = pytest.mark.local_disk
PUBLISHER = "pulsar-spark-publisher-p"
WRITES_OF_A_SEND = 7


def rows(layout) -> list[bytes]:
    return sorted(dataset_of(read_topic(layout, "t").path).to_table()["payload"].to_pylist())


def stray_files(layout) -> set[str]:
    path = read_topic(layout, "t").path
    return {file.name for file in [*path.glob("*.parquet"), *path.glob("_delta_log/.*.tmp")]} - set(named_files(path))


@pytest.fixture
def client(layout):
    create_topic(layout, "t")
    write_durability(layout.root, "fsync")
    client = pulsar.Client(f"delta:{layout.root}")
    yield client
    client.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(1, WRITES_OF_A_SEND + 1))
def test_a_send_of_which_one_write_fails_is_there_once(layout, client, write, after):
    producer = client.create_producer("t", producer_name="p")
    with faults(FULL if write % 2 else READ_ONLY, first=write, after=after, threads={PUBLISHER}) as disk:
        producer.send(b"a")
        assert disk.raised or disk.writes < write
    producer.send(b"b")
    assert rows(layout) == [b"a", b"b"]
    if not after:
        assert not stray_files(layout)


def test_a_send_on_a_disk_that_stays_full_ends_with_a_timeout_and_leaves_nothing(layout, client):
    producer = client.create_producer("t", producer_name="p", send_timeout_millis=700)
    with faults(FULL, first=1, count=1_000_000, threads={PUBLISHER}) as disk:
        with pytest.raises(pulsar.Timeout, match="No space left on device"):
            producer.send(b"refused")
        assert disk.raised > 1
    assert rows(layout) == [] and not stray_files(layout)
    producer.send(b"b")
    assert rows(layout) == [b"b"]
