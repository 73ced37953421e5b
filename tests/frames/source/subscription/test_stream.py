"""A micro-batch that loses messages, has others when it runs again, or acknowledges what was not written, is found
here."""

import pytest

from pulsar_spark.broker.service import liveness
from tests.frames.source.subscription.micro_batches import Checkpoint, Killed, Query, Sink, killed_after
from tests.support.waiting import eventually


def send(client, topic: str, *texts: str, **settings) -> None:
    producer = client.create_producer(topic, **settings)
    for text in texts:
        producer.send(text.encode(), partition_key=text)
    producer.close()


def test_a_committed_micro_batch_is_acknowledged(broker, root, client):
    send(client, "t", "a", "b")
    checkpoint, sink = Checkpoint(), Sink()
    query = Query(root, checkpoint, sink, topic="t", subscription="s")
    assert query.run(1) == 1 and sink.payloads == [b"a", b"b"]
    assert broker.backlog("t", "s") == 2
    send(client, "t", "c")
    query.run(1)
    eventually(lambda: broker.backlog("t", "s") == 1)
    query.run()
    eventually(lambda: broker.backlog("t", "s") == 0)
    query.stop()
    assert sink.payloads == [b"a", b"b", b"c"]
    eventually(lambda: not broker.cursor("t", "s").consumers)


def test_the_acknowledgement_is_written_before_the_next_offset(broker, root, client):
    send(client, "t", "a", "b")
    checkpoint, sink = Checkpoint(), Sink()
    query = Query(root, checkpoint, sink, topic="t", subscription="s", maxMessagesPerTrigger=1)
    query.run(1)
    query._after = killed_after("logged")
    with pytest.raises(Killed):
        query.run(1)
    query.die(broker)
    assert [each.kind for each in broker.requests()].count("ack") == 1
    Query(root, checkpoint, sink, topic="t", subscription="s").run(available_now=True)
    assert sink.payloads == [b"a", b"b"] and broker.backlog("t", "s") == 0


def test_a_process_whose_end_is_seen_late_does_not_end_the_next(broker, root, client, monkeypatch):
    """The next goes on as the same consumer, for another client."""
    send(client, "t", "a")
    checkpoint, sink = Checkpoint(), Sink()
    first = Query(root, checkpoint, sink, killed_after("logged"), topic="t", subscription="s")
    with pytest.raises(Killed):
        first.run(1)
    gone = {each.client_id for each in broker.cursor("t", "s").consumers.values()}
    first.die(broker, is_seen=False)
    second = Query(root, checkpoint, sink, topic="t", subscription="s")
    second.run(1)
    monkeypatch.setattr(liveness, "is_gone", lambda layout, client_id: client_id in gone)
    before = broker.rounds.bundle.round
    broker.rounds.bundle.liveness.look_at(gone)
    send(client, "t", "b")
    second.run(1)
    assert broker.rounds.bundle.round > before and sink.payloads == [b"a", b"b"]
    assert [len(broker.cursor("t", "s").consumers), gone & broker.rounds.bundle.leases.keys()] == [1, set()]
    second.stop()
