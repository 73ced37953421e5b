"""A stream with a subscription that does not work on a root in an object store is found here."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.testing.broker import Broker
from tests.frames.source.subscription.micro_batches import Checkpoint, Query, Sink
from tests.support.object_store import new_root
from tests.support.waiting import send


@pytest.mark.long
def test_a_stream_goes_on_after_a_restart(s3, clock):
    checkpoint, sink = Checkpoint(), Sink()
    with Broker(new_root(), clock=clock) as broker:
        root = broker.layout.root
        client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=60)
        for texts in ("ab", "c"):
            send(client, "t", *texts)
            query = Query(root, checkpoint, sink, topic="t", subscription="s", operationTimeoutSeconds=60)
            query.run(available_now=True)
            query.stop()
        client.shutdown()
        assert sink.payloads == [b"a", b"b", b"c"] and broker.backlog("t", "s") == 0
