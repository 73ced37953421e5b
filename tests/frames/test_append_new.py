"""The commit of a publish to a topic whose messages are deduplicated, without Spark: files as it stages them."""

import uuid

import pyarrow.parquet as pq
import pytest

import pulsar_spark as pulsar
from pulsar_spark.frames.publishing import committing
from pulsar_spark.frames.publishing.committing import append_new
from pulsar_spark.protocol.policies.policies import DEDUPLICATION
from pulsar_spark.storage.delta.file_statistics import staged_statistics
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.staged_files import StagedFile, staging_folder
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.table_specs import MESSAGES
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
COLUMNS = [
    "publish_id",
    "entry_id",
    "batch_size",
    "partition",
    "payload",
    "publish_time",
    "producer_name",
    "sequence_id",
]


@pytest.fixture
def engine(tmp_path) -> SparkEngine:
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    engine.round([ON.policy(DEDUPLICATION, 1)], 0)
    return engine


@pytest.fixture
def topic(engine):
    return read_topic(engine.layout, TOPIC)


@pytest.fixture
def client(engine):
    client = pulsar.Client(f"delta:{engine.layout.root}")
    yield client
    client.close()


def staged(topic, *sequence_ids: int, name: str = "p") -> list[StagedFile]:
    folder, publish_id = staging_folder(topic.path) / uuid.uuid4().hex, uuid.uuid4().hex
    folder.mkdir(parents=True)
    rows = MESSAGES.rows(
        [
            dict(publish_id=publish_id, entry_id=number, batch_size=1, partition=-1, payload=f"{name}{each}".encode())
            | dict(publish_time=0, producer_name=name, sequence_id=each)
            for number, each in enumerate(sequence_ids)
        ]
    )
    path = folder / f"part-{uuid.uuid4()}.parquet"
    pq.write_table(rows.select(COLUMNS), path)
    return [StagedFile(path, path.name, staged_statistics(pq.read_metadata(path)))]


def stored(client) -> list[str]:
    reader, found = client.create_reader(TOPIC, pulsar.MessageId.earliest), []
    while reader.has_message_available():
        found.append(reader.read_next(60_000).data().decode())
    return found


def test_frames_and_clients_share_their_names(topic, client):
    assert append_new(topic, staged(topic, 1, 2, 2, 5, 4), 1, 0) == (1, 4)
    assert append_new(topic, staged(topic, 2, 5, 6), 1, 0) == (2, 1)
    producer = client.create_producer(TOPIC, producer_name="p")
    assert (producer.last_sequence_id(), producer.send(b"again", sequence_id=6).ledger_id()) == (6, -1)
    producer.send(b"p7")
    assert append_new(topic, staged(topic, 6, 7, 8), 1, 0) == (4, 1)
    assert append_new(topic, staged(topic, *range(9)), 1, 0) == (None, 0)
    assert producer.send(b"again", sequence_id=8).ledger_id() == -1
    assert stored(client) == ["p1", "p2", "p5", "p4", "p6", "p7", "p8"]


@pytest.mark.parametrize("transaction", [None, ("job", 1)])
def test_one_that_is_overtaken_is_judged_again(topic, client, monkeypatch, transaction):
    """By a client of the same name, between its look and its commit, and no file of the first try is left."""
    judged, producer, find = [], client.create_producer(TOPIC, producer_name="p"), committing.new_rows

    def overtaken(*arguments):
        if not judged:
            producer.send(b"p1", sequence_id=1)
        judged.append(1)
        return find(*arguments)

    monkeypatch.setattr(committing, "new_rows", overtaken)
    files = staged(topic, 1, 2, 3)
    assert append_new(topic, files, 1, 0, transaction) == (2, 2)
    assert (len(judged), stored(client)) == (2, ["p1", "p2", "p3"])
    named = {file.path for commit in TableLog(topic.path).commits(0) for file in commit.added}
    assert {path.name for path in topic.path.glob("*.parquet")} == named
    assert files[0].source.exists()


def test_an_app_id_counts_once(topic, client):
    transaction = ("job", 1)
    assert append_new(topic, staged(topic, 1), 1, 0, transaction) == (1, 1)
    assert append_new(topic, staged(topic, 2), 1, 0, transaction) == (None, 0)
    assert append_new(topic, staged(topic, 2), 1, 0, ("job", 2)) == (2, 1)
    assert stored(client) == ["p1", "p2"]


def test_others_do_not_overtake(topic, client, monkeypatch):
    """Nor does a commit without names, such as a plain publish."""
    judged, find = [], committing.new_rows
    producers = [client.create_producer(TOPIC, producer_name="q"), client.create_producer(TOPIC)]

    def meanwhile(*arguments):
        judged.append([producer.send(b"x").ledger_id() for producer in producers])
        return find(*arguments)

    monkeypatch.setattr(committing, "new_rows", meanwhile)
    assert append_new(topic, staged(topic, 1), 1, 0) == (3, 1)
    assert judged == [[1, 2]]
