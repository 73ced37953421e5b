"""What keeps a root in an object store small: joining, shortening, removal, trimming, compaction, deletion. Nobody has
a table for himself there, and nobody who reads or writes meanwhile loses anything."""

import time
from collections import Counter

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.admin.upkeep import trim
from pulsar_spark.broker.upkeep.housekeeping import TABLES_A_LOOK, Housekeeping
from pulsar_spark.errors import NotAllowedError, TopicNotFound
from pulsar_spark.storage.compaction import compaction_status
from pulsar_spark.storage.compaction.compacted import CompactedView
from pulsar_spark.storage.compaction.compaction_status import compacting
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta import checkpoints
from pulsar_spark.storage.delta.checkpoints import make_checkpoint
from pulsar_spark.storage.delta.dropped import drop_table
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store import object_store
from pulsar_spark.storage.store.store_lock import store_lock
from pulsar_spark.storage.topics.partitions import raise_partitions
from pulsar_spark.storage.topics.topics import create_topic, delete_topic, list_topics, read_topic
from pulsar_spark.storage.upkeep import joining, shortening, upkeep
from pulsar_spark.storage.upkeep.housekeeping import keep_house
from pulsar_spark.storage.upkeep.kept_tables import NEEDED, Kept, kept_tables
from pulsar_spark.storage.upkeep.shortening import shorten
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.object_store import messages, new_layout, published
from tests.support.waiting import eventually, receive_values, send

N = 8


@pytest.fixture
def layout(in_store) -> Layout:
    return new_layout()


@pytest.fixture
def hasty(monkeypatch):
    """All that is kept for a while goes at once."""
    monkeypatch.setattr(joining, "FILES", 4)
    monkeypatch.setattr(shortening, "LEAST_SECONDS", -10)
    monkeypatch.setattr(upkeep, "NEW_HOURS", 0)
    for module in (checkpoints, shortening):
        monkeypatch.setattr(module, "CHOSEN_SECONDS", -10)


def keep(layout: Layout) -> Counter:
    done: Counter = Counter()
    for kept in kept_tables(layout, read_latest(layout, *NEEDED)):
        if TableLog(kept.path).exists():
            make_checkpoint(kept.path)
            steps = keep_house(
                kept.path, kept.needs, history_seconds=-10, time_travel_seconds=0, now=lambda: time.time() + 10
            )
            for step in steps:
                done[step.what] += step.number
    return done


def test_a_root_is_kept_small_and_serves_on(layout, hasty):
    """Whoever is connected meanwhile, and who comes later, finds all there is."""
    url = f"delta:{layout.root}"
    with PlainBroker(str(layout.root)):
        client = pulsar.Client(url, operation_timeout_seconds=30)
        consumer = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Shared)
        for number in range(N):
            send(client, "t", str(number))
            message = consumer.receive(60_000)
            if number < N - 2:
                consumer.acknowledge(message)
        requests = TableLog(layout.broker_table("requests"))
        before = len(layout.store.below(layout.root))
        eventually(lambda: read_latest(layout, *NEEDED).requests_done == requests.latest())
        done = keep(layout)
        assert all(done[what] > 0 for what in ("files_joined", "log_shortened", "files_removed", "rows_removed")), done
        assert len(layout.store.below(layout.root)) < 0.7 * before
        assert requests.earliest() > 0 and requests.first_actions()
        send(client, "t", "more")
        assert receive_values(consumer, 1) == ["more"]
        client.close()
    with PlainBroker(str(layout.root)):
        client = pulsar.Client(url, operation_timeout_seconds=30)
        consumer = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Shared)
        assert sorted(receive_values(consumer, 3)) == [str(N - 2), str(N - 1), "more"]
        reader = client.create_reader("t", pulsar.MessageId.earliest)
        assert [reader.read_next(60_000).data().decode() for _ in range(N + 1)] == [*map(str, range(N)), "more"]
        client.close()


def test_a_writer_that_was_held_up_takes_no_version_that_is_gone(layout, hasty, monkeypatch):
    """Between its look and its put others commit, and what they committed goes from the log: the put takes place, is
    found to lie where nobody looks, and is made again behind the others'."""
    topic = create_topic(layout, "t")
    held_up, log = AppendTable(topic.path), TableLog(topic.path)
    held_up.append(messages("0"))
    other, put = AppendTable(topic.path), layout.store.put_if_absent

    def late(path, content):
        monkeypatch.setattr(layout.store, "put_if_absent", put)
        for number in range(1, 4):
            other.append(messages(str(number)))
        make_checkpoint(topic.path)
        assert sum(shorten(topic.path, followed=10, before=time.time() + 10)) == 4
        monkeypatch.setattr(object_store, "HELD_UP_SECONDS", -1)
        time_of_theirs = log.file(4).stat().st_mtime
        eventually(lambda: time.time() >= time_of_theirs + 1)  # a store tells seconds
        return put(path, content)

    monkeypatch.setattr(layout.store, "put_if_absent", late)
    assert held_up.append(messages("late")) == 5
    assert sorted(log.versions()) == [4, 5] and log.commit(5).added[0].min_values["publish_id"] == "late"


def test_the_number_of_partitions_rises_after_the_first_commit_left_the_log(layout, hasty):
    topic = create_topic(layout, "t", 2)
    table = AppendTable(topic.path)
    for number in range(3):
        table.append(messages(str(number)).drop_columns("partition").append_column("partition", [[0]]))
    make_checkpoint(topic.path)
    assert sum(shorten(topic.path, followed=10, before=time.time() + 10)) == 3
    assert raise_partitions(layout, "t", 3).partitions == 3
    assert table.append(messages("3").drop_columns("partition").append_column("partition", [[2]])) == 4


def test_trimming(layout):
    with PlainBroker(str(layout.root)):
        client = pulsar.Client(f"delta:{layout.root}", operation_timeout_seconds=30)
        consumer = client.subscribe("t", "s")
        send(client, "t", *"abc")
        for _ in "ab":
            consumer.acknowledge(consumer.receive(60_000))
        client.close()
        eventually(lambda: trim(layout, "t", dry_run=True)[0]["first_position"] == 2)
        (row,) = trim(layout, "t")
        assert row["files"] == 2 and trim(layout, "t")[0]["files"] == 0
        client = pulsar.Client(f"delta:{layout.root}", operation_timeout_seconds=30)
        reader = client.create_reader("t", pulsar.MessageId.earliest)
        assert reader.read_next(60_000).data() == b"c"
        client.close()


def test_compaction(layout):
    admin = Admin(f"delta:{layout.root}")
    with PlainBroker(str(layout.root)):
        client = pulsar.Client(f"delta:{layout.root}", operation_timeout_seconds=30)
        producer = client.create_producer("t")
        for key, value in ("a1", "b1", "a2", "b2", "a3"):
            producer.send(value.encode(), partition_key=key)
        admin.compact("t")
        assert admin.compaction_status("t")["status"] == "SUCCESS"
        producer.send(b"4", partition_key="b")
        reader = client.create_reader("t", pulsar.MessageId.earliest, is_read_compacted=True)
        assert [reader.read_next(60_000).data() for _ in range(3)] == [b"2", b"3", b"4"]
        client.close()
    topic = read_topic(layout, "t")
    with pytest.raises(ZeroDivisionError), compacting(topic):
        with pytest.raises(NotAllowedError, match="in progress"), compacting(topic):
            pass
        assert compaction_status.compaction_status(topic, CompactedView(topic.path)).status == "RUNNING"
        raise ZeroDivisionError("no")
    found = compaction_status.compaction_status(topic, CompactedView(topic.path))
    assert found.status == "ERROR" and "ZeroDivisionError" in found.last_error and found.failed_time_ms


def test_a_compaction_that_ended_without_a_word_is_over_after_a_while(layout, monkeypatch):
    topic = create_topic(layout, "t")
    abandoned = compacting(topic)
    abandoned.__enter__()
    monkeypatch.setattr(compaction_status, "LONGEST_SECONDS", -2)
    found = compaction_status.compaction_status(topic, CompactedView(topic.path))
    assert (found.status, found.last_error) == ("ERROR", compaction_status.ENDED)
    with compacting(topic):
        pass


def test_a_deleted_topic_is_gone_and_may_be_made_again(layout):
    topic = create_topic(layout, "t", 2)
    old = AppendTable(topic.path)
    old.append(messages("old"))
    delete_topic(layout, "t")
    assert not layout.store.below(topic.path) and list_topics(layout, "public", "default") == []
    with pytest.raises(TopicNotFound):
        delete_topic(layout, "t")
    with pytest.raises(FileNotFoundError):
        old.append(messages("late"))
    again = create_topic(layout, "t")
    assert again.topic_id != topic.topic_id and again.partitions == 0
    with pytest.raises(FileNotFoundError):
        old.append(messages("late"))
    AppendTable(again.path).append(messages("new"))
    assert published(again.path) == ["new"]


@pytest.mark.parametrize("is_deleted_again", [False, True])
def test_a_deletion_that_was_interrupted_leaves_no_topic(layout, monkeypatch, is_deleted_again):
    """At whichever of its removals."""
    topic = create_topic(layout, "t")
    for number in range(3):
        AppendTable(topic.path).append(messages(str(number)))
    remove = layout.store.remove

    def crash(names):
        monkeypatch.setattr(layout.store, "remove", remove)
        layout.store.remove(list(names)[::2])
        raise KeyboardInterrupt

    monkeypatch.setattr(layout.store, "remove", crash)
    with pytest.raises(KeyboardInterrupt):
        delete_topic(layout, "t")
    with pytest.raises(TopicNotFound):
        read_topic(layout, "t")
    assert list_topics(layout, "public", "default") == []
    if is_deleted_again:
        drop_table(topic.path)
        assert not layout.store.below(topic.path)
    again = create_topic(layout, "t")
    AppendTable(again.path).append(messages("new"))
    assert published(again.path) == ["new"]


def test_a_commit_that_comes_behind_the_deletion_is_in_nobodys_way(layout):
    topic = create_topic(layout, "t")
    AppendTable(topic.path).append(messages("0"))
    left = TableLog(topic.path).file(1).read_bytes()
    delete_topic(layout, "t")
    layout.store.put_if_absent(TableLog(topic.path).file(2), left)
    assert list_topics(layout, "public", "default") == []
    again = create_topic(layout, "t")
    for number in range(3):
        AppendTable(again.path).append(messages(f"new {number}"))
    assert published(again.path) == [f"new {number}" for number in range(3)]


def test_who_holds_a_lock_for_long_says_so(layout):
    """Else it is taken from him, which he is told of."""
    path, now = layout.root / "lock", [0.0]

    def wait(seconds: float) -> None:
        now[0] += 20
        if now[0] < 100:
            renew()

    with store_lock(path) as renew:
        with store_lock(path, lambda: now[0], wait):
            assert now[0] > 100
        with pytest.raises(OSError, match="taken by another"):
            layout.store.put(path, b"another")
            renew()


def test_housekeeping_looks_at_so_many_tables_at_a_time(layout, monkeypatch):
    """However many there are, each has its turn."""
    asked: list[str] = []
    kept = [Kept(f"t{n}", layout.root / f"t{n}", lambda: None, 0, 0) for n in range(3 * TABLES_A_LOOK - 5)]
    house = Housekeeping(layout, "broker")
    monkeypatch.setattr(house, "_find", lambda: kept)
    monkeypatch.setattr(house, "_look_at", lambda each: asked.append(each.name))
    for look in range(1, 4):
        house.look()
        assert len(asked) == look * TABLES_A_LOOK
    assert set(asked) == {each.name for each in kept}
