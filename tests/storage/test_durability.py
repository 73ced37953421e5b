"""What a write promises that returned: under ``fsync`` it outlives a power loss, under ``none`` the process."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.errors import CorruptState, InvalidConfiguration
from pulsar_spark.storage.delta.file_statistics import file_statistics
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.staged_files import StagedFile, staging_folder
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.durability import DEFAULT, ENVIRONMENT, read_durability, settings_path, write_durability
from pulsar_spark.storage.topics.topics import create_topic, prepare_root
from pulsar_spark.table_specs import MESSAGES, REQUESTS
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.power import recorded


@pytest.fixture(autouse=True)
def new_roots_are_durable(monkeypatch):
    """As outside of tests."""
    monkeypatch.delenv(ENVIRONMENT)


TOPIC = "persistent://public/default/t"


def play(root: Path, lost: Path, durability: str, patience_ms: int = 20_000) -> tuple[list[str], list[str]]:
    """A new root, messages sent, some acknowledged; then the power goes. What returned before (sent, and not
    acknowledged), and what a new broker delivers, each message in *patience_ms*."""
    with recorded(root.parent) as disk:
        prepare_root(Layout(root))
        write_durability(root, durability)
        with PlainBroker(root):
            client = pulsar.Client(f"delta:{root}")
            producer = client.create_producer("t")
            consumer = client.subscribe(
                "t", "s", consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
            )
            sent = [f"m{number}" for number in range(20)]
            for value in sent:
                producer.send(value.encode())
            for _ in range(10):
                message = consumer.receive(timeout_millis=60_000)
                consumer.acknowledge(message)
                sent.remove(message.data().decode())
            consumer.close()
            client.close()
        survivors = disk.lose_power(lost) / root.name
    return sent, delivered(survivors, len(sent), patience_ms)


def delivered(root: Path, count: int, patience_ms: int) -> list[str]:
    with PlainBroker(root):
        client = pulsar.Client(f"delta:{root}")
        consumer = client.subscribe(
            "t", "s", consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
        )
        found = [consumer.receive(timeout_millis=patience_ms).data().decode() for _ in range(count)]
        with pytest.raises(pulsar.Timeout):
            consumer.receive(timeout_millis=300)
        client.close()
        return found


@pytest.mark.default
def test_nothing_that_returned_is_lost_with_the_power(tmp_path):
    (tmp_path / "disk").mkdir()
    kept, found = play(tmp_path / "disk/root", tmp_path / "lost", "fsync")
    assert found == kept and len(kept) == 10
    assert Admin(f"delta:{tmp_path / 'lost/root'}").doctor() == []


def test_without_syncs_it_is_lost(tmp_path):
    """The test above can fail."""
    (tmp_path / "disk").mkdir()
    with pytest.raises((CorruptState, pulsar.PulsarException, OSError, AssertionError)):
        play(tmp_path / "disk/root", tmp_path / "lost", "none", patience_ms=1000)


@pytest.mark.parametrize("partitions", [0, 2])
def test_each_append_is_whole_after_a_power_loss_and_no_earlier_one_is_touched(tmp_path, partitions):
    (tmp_path / "disk").mkdir()
    layout = Layout(tmp_path / "disk/root")
    topic = create_topic(layout, TOPIC, partitions)
    table = AppendTable(topic.path)
    row = dict(publish_id="0" * 32, entry_id=0, batch_size=1, payload=b"x", partition=topic.partition_indexes[-1])
    with recorded(tmp_path / "disk") as disk:
        assert table.append(MESSAGES.rows([row])) == 1
        assert table.append_once(MESSAGES.rows([row | {"publish_id": "1" * 32}]), "app", 1) == 2
        staged = staging_folder(topic.path) / "part-0.parquet"
        staged.parent.mkdir()
        rows = MESSAGES.rows([row | {"publish_id": "2" * 32}])
        pq.write_table(rows.drop_columns(["partition"]) if partitions else rows, staged)
        name = f"partition={row['partition']}/part-0.parquet" if partitions else "part-0.parquet"
        assert table.append([StagedFile(staged, name, file_statistics(pq.read_metadata(staged)))]) == 3
        survivors = Layout(disk.lose_power(tmp_path / "lost") / "root")
    log = TableLog(survivors.topic(topic.name))
    assert [sum(file.rows for file in commit.added) for commit in log.commits(0)] == [1, 1, 1]
    for commit in log.commits(0):
        for file in commit.added:
            assert pq.read_metadata(log.folder.parent / file.path).num_rows == 1
    assert Admin(f"delta:{survivors.root}").doctor() == []


@pytest.mark.local_disk
def test_the_setting_is_the_root_s_and_holds_for_handles_that_are_open(layout, monkeypatch):
    import os

    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(descriptor))
    table = AppendTable(layout.broker_table("requests"))
    assert read_durability(layout.root) == DEFAULT == "fsync"
    for durability, count in (("none", 0), ("fsync", 4)):
        write_durability(layout.root, durability)
        synced.clear()
        table.append(REQUESTS.rows([dict(request_id="r")]))
        assert len(synced) == count, "data file, table's folder, commit, log's folder"


@pytest.mark.local_disk
def test_a_setting_that_is_none_is_refused_and_one_that_is_broken_is_named(layout, caplog):
    admin = Admin(f"delta:{layout.root}")
    with pytest.raises(InvalidConfiguration, match="durability 'often': give 'fsync'"):
        admin.set_durability("often")
    admin.set_durability("none")
    assert admin.get_durability() == "none"
    for text in ("", "{", '{"durability": "often"}', "[]"):
        settings_path(layout.root).write_text(text)
        caplog.clear()
        assert [admin.get_durability() for _ in range(3)] == ["fsync"] * 3
        assert [record.message.count("pulsar-spark durability set") for record in caplog.records] == [1], "once"
        assert [finding["kind"] for finding in admin.doctor()] == ["settings"]
        admin.set_durability("fsync")
        assert admin.doctor() == []
    assert json.loads(settings_path(layout.root).read_text()) == {"durability": "fsync"}
