"""What a producer sends again is stored once, by its name and sequence ids (protocol.policies.deduplication)."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.link import quota
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.producers import TopicProducers
from tests.support.processes import run
from tests.support.waiting import eventually

NAMESPACE = "public/default"
NOWHERE = "(-1,-1,-1,-1)"
BATCHING = dict(batching_enabled=True, batching_max_publish_delay_ms=60_000)


@pytest.fixture
def admin(broker, service_url, monkeypatch) -> Admin:
    """Producers look at every send."""
    monkeypatch.setattr(quota, "LOOK_SECONDS", 0.0)
    return Admin(service_url)


@pytest.fixture
def on(admin) -> Admin:
    admin.set_deduplication(NAMESPACE, True)
    return admin


def stored(client, topic: str = "t") -> list[str]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(60_000).data().decode())
    reader.close()
    return found


def send(producer, *sequence_ids: int) -> list[str]:
    """Send each, its payload the number; the ids that were told."""
    return [str(producer.send(str(each).encode(), sequence_id=each)) for each in sequence_ids]


def send_together(producer, *sequence_ids: int) -> list[str]:
    """The same without waiting in between."""
    told = []
    for each in sequence_ids:
        producer.send_async(
            str(each).encode(), lambda result, message_id: told.append(str(message_id)), sequence_id=each
        )
    producer.flush()
    return told


def test_a_message_is_stored_once_and_sending_it_again_succeeds(on, client):
    producer = client.create_producer("t", producer_name="p")
    assert send(producer, 1, 2, 2, 1, 5, 4, 6) == [
        "(1,0,-1,-1)",
        "(2,0,-1,-1)",
        NOWHERE,
        NOWHERE,
        "(3,0,-1,-1)",
        NOWHERE,
        "(4,0,-1,-1)",
    ]
    assert stored(client) == ["1", "2", "5", "6"]


def test_what_is_sent_without_waiting_is_judged_in_the_order_of_sending(on, client):
    producer = client.create_producer("t", producer_name="p")
    assert send_together(producer, 2, 1, 3, 3, 4)[1::2] == [NOWHERE, NOWHERE]
    assert stored(client) == ["2", "3", "4"]


def test_a_producer_goes_on_behind_the_highest_of_its_name(on, client, other_client):
    first = client.create_producer("t", producer_name="p")
    send(first, 3, 7)
    first.close()
    again = other_client.create_producer("t", producer_name="p")
    assert again.last_sequence_id() == 7
    again.send(b"next")
    assert (again.last_sequence_id(), send(again, 8)) == (8, [NOWHERE])
    assert stored(client) == ["3", "7", "next"]


def test_each_name_has_sequence_ids_of_its_own(on, client):
    names = ["p", "q", "P", "p/1", "ü", "p%2F1", "", "x" * 5000, "x" * 4999]
    for name in names:
        producer = client.create_producer("t", producer_name=name)
        send(producer, 1, 1)
        producer.close()
    assert stored(client) == ["1"] * len(names)
    assert [client.create_producer("t", producer_name=name).last_sequence_id() for name in names if name] == [1] * 8


def test_without_deduplication_sequence_ids_may_go_backward(admin, client):
    producer = client.create_producer("t", producer_name="p")
    assert NOWHERE not in send(producer, 5, 3, 3)
    assert (producer.last_sequence_id(), stored(client)) == (3, ["5", "3", "3"])
    producer.close()
    assert client.create_producer("t", producer_name="p").last_sequence_id() == -1


def test_what_was_stored_while_it_was_off_does_not_count(admin, client):
    producer = client.create_producer("t", producer_name="p")
    send(producer, 1, 2)
    admin.set_deduplication(NAMESPACE, True)
    assert send(producer, 1, 2, 2)[2] == NOWHERE
    admin.set_deduplication(NAMESPACE, False)
    send(producer, 2)
    admin.set_deduplication(NAMESPACE, True)
    producer.close()
    producer = client.create_producer("t", producer_name="p")
    assert producer.last_sequence_id() == -1
    assert send(producer, 1, 1)[1] == NOWHERE
    assert stored(client) == ["1", "2", "1", "2", "2", "1"]


def test_setting_it_again_changes_nothing(on, client):
    producer = client.create_producer("t", producer_name="p")
    send(producer, 2)
    on.set_deduplication(NAMESPACE, True)
    assert send(producer, 2, 1) == [NOWHERE, NOWHERE]


def test_a_topic_s_own_policy_goes_before_its_namespace_s(on, client):
    producers = [client.create_producer(name, producer_name="p") for name in ("t", "u")]
    on.set_deduplication("persistent://public/default/t", False)
    for producer in producers:
        send(producer, 2, 2)
    assert (stored(client), stored(client, "u")) == (["2", "2"], ["2"])
    assert (on.get_deduplication(NAMESPACE), on.get_deduplication("persistent://public/default/u")) == (True, None)
    on.remove_deduplication("persistent://public/default/t")
    assert [each == NOWHERE for each in send(producers[0], 1, 1)] == [False, True], "what came before does not count"
    assert send(producers[1], 1, 2) == [NOWHERE, NOWHERE]


def test_a_topic_s_own_policy_comes_and_goes_without_a_break_while_its_namespace_s_is_on(admin, client):
    topic = "persistent://public/default/t"
    producer = client.create_producer("t", producer_name="p")
    admin.set_deduplication(topic, True)
    send(producer, 2)
    admin.set_deduplication(NAMESPACE, True)
    for change in (admin.remove_deduplication, lambda name: admin.set_deduplication(name, True)) * 2:
        change(topic)
        assert send(producer, 1, 2) == [NOWHERE, NOWHERE]
    admin.remove_deduplication(topic)
    admin.set_deduplication(NAMESPACE, False)
    send(producer, 1)
    admin.set_deduplication(NAMESPACE, True)
    assert [each == NOWHERE for each in send(producer, 1, 1)] == [False, True], "what came before does not count"


def test_what_is_set_for_the_root_holds_where_namespace_and_topic_say_nothing(admin, client):
    producers = [client.create_producer(name, producer_name="p") for name in ("t", "u")]
    admin.set_deduplication("broker", True)
    admin.set_deduplication("persistent://public/default/u", False)
    for producer in producers:
        send(producer, 2, 2)
    assert (stored(client), stored(client, "u")) == (["2"], ["2", "2"])
    assert (admin.get_deduplication("broker"), admin.get_deduplication(NAMESPACE)) == (True, None)
    for change in (lambda: admin.set_deduplication(NAMESPACE, True), lambda: admin.remove_deduplication(NAMESPACE)) * 2:
        change()
        assert send(producers[0], 1, 2) == [NOWHERE, NOWHERE]
    admin.set_deduplication(NAMESPACE, False)
    send(producers[0], 1)
    admin.remove_deduplication(NAMESPACE)
    assert [each == NOWHERE for each in send(producers[0], 1, 1)] == [False, True], "what came before does not count"
    admin.remove_deduplication("broker")
    assert NOWHERE not in send(producers[0], 1, 1)


def test_an_initial_sequence_id_is_kept_whatever_is_stored(on, client):
    producer = client.create_producer("t", producer_name="p")
    send(producer, 3)
    producer.close()
    behind = client.create_producer("t", producer_name="p", initial_sequence_id=2)
    assert (behind.last_sequence_id(), str(behind.send(b"3 again")), str(behind.send(b"4"))) == (
        2,
        NOWHERE,
        "(2,0,-1,-1)",
    )
    assert stored(client) == ["3", "4"]


@pytest.fixture
def unseen(monkeypatch):
    """Producers do not see each other, as where one is thought to be gone."""
    monkeypatch.setattr(TopicProducers, "others", lambda self: [])


def test_two_of_a_name_in_turn(on, client, other_client, unseen):
    """Each sees before its commit what the other committed."""
    first, second = (each.create_producer("t", producer_name="p") for each in (client, other_client))
    for sequence_id in range(10):
        assert send(first, sequence_id)[0] != NOWHERE
        assert send(second, sequence_id) == [NOWHERE]
        first, second = second, first
    assert stored(client) == [str(each) for each in range(10)]


def test_two_of_a_name_at_once(on, client, other_client, unseen):
    told = []
    producers = [each.create_producer("t", producer_name="p") for each in (client, other_client)]
    for sequence_id in range(200):
        for producer in producers:
            producer.send_async(
                str(sequence_id).encode(),
                lambda result, message_id: told.append(str(message_id)),
                sequence_id=sequence_id,
            )
        if sequence_id % 10 == 9:
            producers[sequence_id // 10 % 2].flush()
    for producer in producers:
        producer.flush()
    found = stored(client)
    assert len(found) == len(set(found)) == sum(each != NOWHERE for each in told)
    assert (len(told), found) == (400, sorted(found, key=int))


def test_batches_are_stored_without_their_duplicates(on, client):
    producer = client.create_producer("t", producer_name="p", **BATCHING)
    assert NOWHERE not in send_together(producer, 1, 2, 3)
    assert send_together(producer, 1, 2, 3) == [NOWHERE] * 3
    assert send_together(producer, 3, 4, 5) == [NOWHERE, "(2,0,-1,0)", "(2,0,-1,1)"]
    assert stored(client) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("keys", ["abab", "aba"])
def test_of_key_based_batches_nothing_is_lost(on, client, monkeypatch, keys):
    """Though the second batch's sequence ids are below the first one's last, and a commit has room for one batch."""
    monkeypatch.setattr("pulsar_spark.client.sending.publisher.MAX_COMMIT_MESSAGES", 1)
    producer = client.create_producer("t", producer_name="p", batching_type=pulsar.BatchingType.KeyBased, **BATCHING)
    for key in keys:
        producer.send_async(key.encode(), None, partition_key=key)
    producer.flush()
    assert stored(client) == sorted(keys)
    for sequence_id, key in enumerate(keys):
        producer.send_async(b"again", None, partition_key=key, sequence_id=sequence_id)
    producer.flush()
    assert stored(client) == sorted(keys)


def test_each_partition_has_sequence_ids_of_its_own(on, client):
    on.create_partitioned_topic("t", 3)
    producer = client.create_producer("t", producer_name="p")
    for key in "abcdef":
        producer.send_async(key.encode(), None, partition_key=key)
    producer.close()
    again = client.create_producer("t", producer_name="p")
    assert again.last_sequence_id() == 5
    for sequence_id, key in enumerate("abcdef"):
        message_id = again.send(b"again", partition_key=key, sequence_id=sequence_id)
        assert (message_id.ledger_id(), message_id.partition()) == (-1, again.partition_for_key(key))
    assert sorted(stored(client)) == list("abcdef")
    again.close()
    one = client.create_producer("t-partition-0", producer_name="p", initial_sequence_id=-1)
    assert one.last_sequence_id() == max(n for n, key in enumerate("abcdef") if again.partition_for_key(key) == 0)


def test_chunked_messages(on, client):
    producer = client.create_producer("t", producer_name="p", chunking_enabled=True, chunk_max_message_size=4)
    first = producer.send(b"0123456789", sequence_id=1)
    again = producer.send(b"0123456789", sequence_id=1)
    assert (str(again), TableLog(on.describe("t")["path"]).latest()) == (NOWHERE, first.ledger_id())
    producer.send(b"9876543210", sequence_id=2)
    assert stored(client) == ["0123456789", "9876543210"]


def test_chunks_of_a_message_that_were_written_by_a_producer_that_died_are_sent_again(on, client):
    for chunk_id, payload in enumerate((b"0123", b"4567")):
        on.publish_raw_chunk("t", "p-1", chunk_id, 3, 10, payload, producer_name="p")
    producer = client.create_producer("t", producer_name="p", chunking_enabled=True, chunk_max_message_size=4)
    assert str(producer.send(b"0123456789", sequence_id=1)) != NOWHERE
    assert str(producer.send(b"0123456789", sequence_id=1)) == NOWHERE
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
    assert consumer.receive(60_000).data() == b"0123456789"


def test_an_open_producer_learns_that_it_is_switched_on(broker, service_url, client):
    producer = client.create_producer("t", producer_name="p")
    send(producer, 1)
    Admin(service_url).set_deduplication(NAMESPACE, True)
    eventually(lambda: NOWHERE in send(producer, 1))


DIES = """
client = pulsar.Client(url)
store = client._layout.store
put = store.put_in_first_free
def die(*arguments):
    if when == "after":
        put(*arguments)
    os._exit(9)
producer = client.create_producer("t", producer_name="p")
for each in range(3):
    producer.send(str(each).encode())
store.put_in_first_free = die
producer.send(b"3")
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_producer_that_died_at_its_commit_sends_again(on, client, service_url, when):
    """Whether its commit was there or not, it goes on behind what is stored, and each message is stored once."""
    assert run(f"when = {when!r}\n" + DIES, service_url)[0] == 9
    there = 4 if when == "after" else 3
    assert stored(client) == [str(each) for each in range(there)]
    again = client.create_producer("t", producer_name="p")
    assert again.last_sequence_id() == there - 1
    assert send(again, *range(6)).count(NOWHERE) == there
    assert stored(client) == [str(each) for each in range(6)]


def test_a_commit_whose_outcome_is_unclear_is_stored_once(on, client, monkeypatch):
    """It raised behind the link, or before it; it is found, or written again."""
    append, failures = AppendTable.append_after, ["after", "before", "after"]

    def unclear(*arguments):
        when = failures.pop() if failures else None
        version = append(*arguments) if when != "before" else None
        if when:
            raise OSError("the network is gone")
        return version

    producer = client.create_producer("t", producer_name="p")
    monkeypatch.setattr(AppendTable, "append_after", unclear)
    assert NOWHERE not in send(producer, 1, 2, 3)
    assert send(producer, 2, 3) == [NOWHERE, NOWHERE]
    assert (failures, stored(client)) == ([], ["1", "2", "3"])
