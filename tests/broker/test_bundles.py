"""Several bundles: each serves its slice of the topics, and what was one is split."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from unittest.mock import Mock

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.bundle import split as splitting
from pulsar_spark.broker.bundle.split import split_bundle
from pulsar_spark.broker.bundle.topic_news import TopicNews
from pulsar_spark.errors import CorruptState, InvalidConfiguration, NotAllowedError
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED
from pulsar_spark.protocol.topics.bundles import WHOLE, BundleRange, topic_hash
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.delta.log import TableLog, read_actions
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.topics import announcements
from pulsar_spark.storage.topics.announcements import announcement_of, announcements_folder, take_announced
from pulsar_spark.storage.topics.bundles import bundles_of, layout_of, layouts_of
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.table_specs import LEDGERS, MESSAGES, REQUESTS
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.commands import say
from tests.support.requests import On
from tests.support.waiting import eventually

LOWER, UPPER = WHOLE.split()


def topics_in(bundle: BundleRange, count: int = 1) -> list[str]:
    """Names of topics that lie in a bundle."""
    names = (f"persistent://public/default/t{number}" for number in range(1000))
    return [name for name in names if bundle.holds(name)][:count]


(LOW,), (HIGH,) = topics_in(LOWER), topics_in(UPPER)


def both(root) -> list[PlainBroker]:
    return [PlainBroker(root, bundle=each.bundle) for each in layouts_of(Layout(root))]


def test_a_root_without_the_file_has_one_bundle(layout):
    assert bundles_of(layout).ranges == (WHOLE,)
    assert layout_of(layout, HIGH) is layout


def test_a_bundle_is_split_in_the_middle_or_at_a_hash(layout):
    assert split_bundle(layout) == (LOWER, UPPER)
    upper = layout_of(layout, HIGH)
    assert upper.bundle == str(UPPER)
    at = topic_hash(HIGH)
    assert split_bundle(upper, at)[1] == BundleRange(at, UPPER.upper)
    assert [str(each) for each in bundles_of(layout).ranges] == [
        str(LOWER),
        str(BundleRange(UPPER.lower, at)),
        str(BundleRange(at, UPPER.upper)),
    ]
    with pytest.raises(InvalidConfiguration, match="cannot be split at 0x00000000: give a hash above"):
        split_bundle(layout, 0)


def test_a_bundle_that_a_program_serves_for_itself_is_not_split(root, layout):
    """Nobody would serve the other part. It serves on."""
    with PlainBroker(root) as broker:
        with pytest.raises(NotAllowedError, match=f"{broker.broker_id}, which does not hand it over: stop"):
            split_bundle(layout)
        assert not broker.is_stopping and bundles_of(layout).ranges == (WHOLE,)


@pytest.mark.local_disk  # in a store nobody believes a lease that is not renewed
def test_a_bundle_that_is_not_handed_over_in_time_is_not_split(root, layout, monkeypatch):
    """Its round may take long. It is not handed over later, when nobody waits for it."""
    monkeypatch.setattr(splitting, "HAND_OVER_SECONDS", 0)
    serving = BundleLease(layout, "serving")
    serving.take(hands_over=True)
    with pytest.raises(NotAllowedError, match="serving, which did not hand it over within 0 s"):
        split_bundle(layout)
    serving.take(hands_over=True)
    assert not serving.is_wanted


def test_where_it_cannot_be_split_nobody_is_asked_to_hand_it_over(root, layout):
    serving = BundleLease(layout, "serving")
    serving.take(hands_over=True)
    with pytest.raises(InvalidConfiguration, match="cannot be split at"):
        split_bundle(layout, 0)
    serving.take(hands_over=True)
    assert not serving.is_wanted


@pytest.mark.local_disk
def test_two_that_want_to_split_one_bundle_are_told_apart(root, layout):
    serving = BundleLease(layout, "serving")
    serving.take(hands_over=True)
    assert BundleLease(layout, "first").request()
    with pytest.raises(NotAllowedError, match="serving, which already hands it over for another split"):
        split_bundle(layout)


def test_a_broker_of_a_root_of_several_bundles_is_told_which(root, layout):
    split_bundle(layout)
    with pytest.raises(InvalidConfiguration, match="has 2 bundles, and a Broker serves only one"):
        PlainBroker(root)


def test_clients_find_the_broker_of_each_topic(root):
    split_bundle(Layout(root))
    lower, upper = both(root)
    with lower, upper, closing(pulsar.Client(f"delta:{root}")) as client:
        consumer = client.subscribe([LOW, HIGH], "s")
        for name in (LOW, HIGH):
            client.create_producer(name).send(name.encode())
        received = [consumer.receive(60_000) for _ in range(2)]
        assert sorted(message.data() for message in received) == sorted([LOW.encode(), HIGH.encode()])
        for message in received:
            consumer.acknowledge(message)
        admin = Admin(f"delta:{root}")
        for name in (LOW, HIGH):
            eventually(lambda name=name: admin.stats(name)["subscriptions"]["s"]["msgBacklog"] == 0)
        assert set(lower.rounds.bundle.topics) == {LOW}
        assert set(upper.rounds.bundle.topics) == {HIGH}


def test_what_was_acknowledged_held_and_unread_is_after_a_split_as_it_was_before(root):
    with closing(pulsar.Client(f"delta:{root}")) as client:
        with PlainBroker(root):
            consumers = {name: client.subscribe(name, "s", pulsar.ConsumerType.Shared) for name in (LOW, HIGH)}
            for name in (LOW, HIGH):
                producer = client.create_producer(name)
                for number in range(10):
                    producer.send(b"%d" % number)
            for consumer in consumers.values():
                for _ in range(4):
                    consumer.acknowledge(consumer.receive(60_000))
                consumer.receive(60_000)
            admin = Admin(f"delta:{root}")
            for name in (LOW, HIGH):
                eventually(lambda name=name: admin.stats(name)["subscriptions"]["s"]["msgBacklog"] == 6)
        split_bundle(Layout(root))
        lower, upper = both(root)
        with lower, upper:
            found = {name: {consumers[name].receive(60_000).data() for _ in range(6)} for name in [HIGH]}
            assert found[HIGH] == {b"%d" % number for number in range(4, 10)}
            assert {consumers[LOW].receive(60_000).data() for _ in range(5)} == {b"%d" % each for each in range(5, 10)}


def test_who_subscribes_while_the_topic_goes_to_another_bundle_receives(root):
    Admin(f"delta:{root}").create_topic(HIGH)
    with closing(pulsar.Client(f"delta:{root}")) as client, ThreadPoolExecutor() as pool:
        client.create_producer(HIGH).send(b"before")
        asked = TableLog(Layout(root).broker_table(REQUESTS.name))
        subscribing = pool.submit(client.subscribe, HIGH, "s", initial_position=pulsar.InitialPosition.Earliest)
        eventually(lambda: asked.latest() > 0)
        split_bundle(Layout(root))
        lower, upper = both(root)
        with lower, upper:
            assert subscribing.result(60).receive(60_000).data() == b"before"


def test_what_is_asked_during_a_split_is_done_once_and_what_is_asked_of_all_by_both(root):
    with PlainBroker(root), closing(pulsar.Client(f"delta:{root}")) as client:
        client.subscribe(HIGH, "s").close()
        producer = client.create_producer(HIGH)
        for number in range(10):
            producer.send(b"%d" % number)
    admin, asked = Admin(f"delta:{root}"), TableLog(Layout(root).broker_table(REQUESTS.name))
    with ThreadPoolExecutor() as pool:
        before = asked.latest()
        skipping = pool.submit(Admin(f"delta:{root}").skip_messages, HIGH, "s", 2)
        setting = pool.submit(admin.set_policy, "public/default", "message_ttl_seconds", 3600)
        acknowledged = REQUESTS.rows([On(HIGH).ack(9)])
        AppendTable(Layout(root).broker_table(REQUESTS.name)).append(acknowledged)
        eventually(lambda: asked.latest() == before + 3)
        split_bundle(Layout(root))
        lower, upper = both(root)
        with upper:
            eventually(lambda: upper.statuses(HIGH, "s") == {9: ACKNOWLEDGED})
        with lower, both(root)[1] as upper:
            assert skipping.result(60) == 2
            setting.result(60)
            for broker in (lower, upper):
                eventually(lambda broker=broker: broker.rounds.bundle.policy(HIGH, "message_ttl_seconds") == 3600)
            assert admin.stats(HIGH)["subscriptions"]["s"]["msgBacklog"] == 7


@pytest.mark.local_disk
def test_repair_is_of_all_bundles(root, layout):
    split_bundle(layout)
    upper = layout_of(layout, HIGH)
    with PlainBroker(root, bundle=upper.bundle) as broker:
        with closing(pulsar.Client(f"delta:{root}")) as client:
            client.create_producer(HIGH).send(b"numbered")
            state = broker.rounds.bundle
            eventually(lambda: HIGH in state.topics and state.topics[HIGH].end_position(-1) == 1)
        admin = Admin(f"delta:{root}")
        with pytest.raises(NotAllowedError, match=broker.broker_id):
            admin.repair()
    ledgers = TableLog(upper.broker_table(LEDGERS.name))
    file = ledgers.file(ledgers.latest())
    added = [action["add"] for action in read_actions(file) if "add" in action]
    (upper.broker_table(LEDGERS.name) / added[0]["path"]).unlink()
    file.write_text("")
    assert [(each["table"], each["is_done"]) for each in admin.repair(forget=True)] == [("ledgers", True)] * 2
    assert admin.doctor() == []


@pytest.mark.default
@pytest.mark.parametrize("step", ["append_requests", "_clone", "add_bundle", "removed_consumer_row"])
@pytest.mark.parametrize("is_after", [False, True])
def test_a_split_that_comes_to_no_end_is_whole_or_is_none(root, monkeypatch, step, is_after):
    layout = Layout(root)
    with PlainBroker(root), closing(pulsar.Client(f"delta:{root}")) as client:
        consumer = client.subscribe(HIGH, "s", initial_position=pulsar.InitialPosition.Earliest)
        producer = client.create_producer(HIGH)
        for number in range(4):
            producer.send(b"%d" % number)
        for _ in range(2):
            consumer.acknowledge(consumer.receive(60_000))
        consumer.close()
    real = getattr(splitting, step)
    calls = []

    def failing(*arguments):
        calls.append(1)
        if is_after:
            real(*arguments)
        if len(calls) == (2 if step == "add_bundle" else 1):
            raise OSError("the machine went down")
        return real(*arguments)

    monkeypatch.setattr(splitting, step, failing)
    try:
        split_bundle(layout)
    except OSError:
        monkeypatch.undo()
        with PlainBroker(root, bundle=layout.bundle):  # who starts next finds out
            pass
        if len(bundles_of(layout).ranges) == 1:
            split_bundle(layout)
    assert bundles_of(layout).ranges == (LOWER, UPPER)
    lower, upper = both(root)
    with lower, upper, closing(pulsar.Client(f"delta:{root}")) as client:
        consumer = client.subscribe(HIGH, "s")
        assert [consumer.receive(60_000).data() for _ in range(2)] == [b"2", b"3"]


def test_who_announces_a_publish_where_the_topic_was_before_a_split_is_heard(root, layout):
    """He looks for its bundle again within a minute, in a store, and is told by nobody: he asks for nothing."""
    table = layout.topic(parse_topic_name(HIGH))
    split_bundle(layout)
    files = [announcement_of(table), announcement_of(layout.topic(parse_topic_name(LOW))), "0" * 64, "a,b", "_,_,_"]
    for name in files:
        layout.store.touch(f"{announcements_folder(layout)}/{name}")
    assert TopicNews(layout, {}).moved() == []
    assert take_announced(layout) == []
    assert [name for name in take_announced(layout_of(layout, HIGH)) if name in files] == files[:1]


@pytest.mark.parametrize("text", ["", "{}", '{"bundles": []}', '{"bundles": [{"range": "0x1", "folder": "x"}]}'])
def test_a_file_of_bundles_that_says_none_is_named_with_what_to_do(layout, text):
    (layout.root / "_bundles" / "bundles.json").write_text(text)
    with pytest.raises(CorruptState, match="bundles.json' cannot be read .*: restore it from a backup"):
        bundles_of(layout)


@pytest.mark.parametrize("error", [OSError("the disk"), CorruptState("the file")])
def test_a_commit_that_is_there_is_no_error_where_bundles_cannot_be_read(root, monkeypatch, error):
    Admin(f"delta:{root}").create_topic(HIGH)
    table = read_topic(Layout(root), HIGH).path
    message = dict(publish_id="f" * 32, entry_id=0, batch_size=1, partition=-1, payload=b"x")
    monkeypatch.setattr(announcements, "bundles_of", Mock(side_effect=error))
    assert AppendTable(table).append(MESSAGES.rows([message])) == 1


def test_bundles_are_listed_and_split_by_a_command(root):
    (one,) = json.loads(say(root, "bundles", "list", "--json"))
    assert one["bundle"] == str(WHOLE) and one["broker"] is None
    assert say(root, "bundles", "split", str(WHOLE)) == f"{WHOLE} is split into {LOWER} and {UPPER}\n"
    with pytest.raises(InvalidConfiguration, match="does not exist in this root, which has"):
        Admin(f"delta:{root}").split_bundle(str(WHOLE))
    assert [each["bundle"] for each in Admin(f"delta:{root}").bundles()] == [str(LOWER), str(UPPER)]


def test_a_namespace_s_policy_holds_in_all_bundles(root, layout):
    split_bundle(layout)
    lower, upper = both(root)
    with lower, upper:
        admin = Admin(f"delta:{root}")
        for name in (LOW, HIGH):
            admin.create_topic(name)
        admin.set_policy("public/default", "message_ttl_seconds", 60)
        admin.set_policy(HIGH, "message_ttl_seconds", 5)
        assert lower.rounds.bundle.policy(LOW, "message_ttl_seconds") == 60
        assert upper.rounds.bundle.policy(HIGH, "message_ttl_seconds") == 5
        assert admin.get_policies(HIGH) == {"message_ttl_seconds": "5"}
        assert admin.get_policies("public/default") == {"message_ttl_seconds": "60"}
