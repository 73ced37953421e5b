"""The client on asyncio."""

import asyncio
import contextlib
import threading
import time

import pytest

import pulsar_spark as pulsar
import pulsar_spark.asyncio as aio
from tests.support.waiting import eventually

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)
SHARED = dict(consumer_type=pulsar.ConsumerType.Shared)


@contextlib.asynccontextmanager
async def opened(service_url, **options):
    client = aio.Client(service_url, operation_timeout_seconds=10, **options)
    try:
        yield client
    finally:
        client.shutdown()


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 30))


def test_messages_go_there_and_back(broker, service_url):
    async def work():
        async with opened(service_url) as client:
            consumer = await client.subscribe("t", "s")
            producer = await client.create_producer("t", producer_name="me")
            assert (producer.topic(), producer.producer_name()) == ("persistent://public/default/t", "me")
            ids = await asyncio.gather(*(producer.send(b"%d" % number) for number in range(20)))
            received = [await consumer.receive() for _ in ids]
            assert [message.data() for message in received] == [b"%d" % number for number in range(20)]
            assert [message.message_id() for message in received] == ids
            assert producer.last_sequence_id() == 19
            for message in received[:-1]:
                await consumer.acknowledge(message)
            await consumer.acknowledge(received[-1].message_id())
            await consumer.close()
            with pytest.raises(aio.PulsarException) as closed:
                await consumer.close()
            assert closed.value.error() is pulsar.Result.AlreadyClosed
            assert str(closed.value).startswith("15 AlreadyClosed: ")

            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for((await client.subscribe("t", "s")).receive(), 0.3)

    run(work())


def test_a_consumer_of_a_pattern_that_fits_nothing_leaves_at_once(broker, service_url):
    async def work():
        client = aio.Client(service_url, operation_timeout_seconds=600)
        for leave in ("close", "unsubscribe"):
            consumer = await client.subscribe("no-such-.*", "s", is_pattern_topic=True)
            await consumer.seek(0)
            consumer.redeliver_unacknowledged_messages()
            await getattr(consumer, leave)()
        consumer = await client.subscribe("no-such-.*", "s", is_pattern_topic=True)
        waiting = asyncio.ensure_future(consumer.receive())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(aio.PulsarException) as closed:
            await waiting
        assert closed.value.error() is pulsar.Result.AlreadyClosed

    with broker.paused():
        run(work())


@pytest.mark.parametrize("pattern", ["", " ", "public/default/", "order-["])
def test_a_pattern_that_is_none_is_refused(service_url, pattern):
    async def work():
        async with opened(service_url) as client:
            with pytest.raises(aio.PulsarException) as refused:
                await client.subscribe(pattern, "s", is_pattern_topic=True)
            assert refused.value.error() is pulsar.Result.InvalidTopicName

    run(work())


def test_a_consumer_whose_line_is_down_does_not_say_that_it_closed(broker, service_url):
    async def work():
        async with opened(service_url) as client:
            consumer = await client.subscribe("t", "s")
            channel = consumer._consumer._channel.of("persistent://public/default/t")
            submit = channel.submit

            def submit_late(rows, *, committed=None, **options):
                submit(rows, **options)
                channel.failure = pulsar.ConnectError("the root was made again")
                committed(-1)

            channel.submit = submit_late
            with pytest.raises(aio.PulsarException) as failed:
                await consumer.close()
            assert failed.value.error() is pulsar.Result.ConnectError

    run(work())


def test_waiting_takes_no_thread_each_and_no_message(broker, service_url):
    """A hundred calls wait; those that are cancelled take no message with them."""

    async def work():
        async with opened(service_url) as client:
            consumer = await client.subscribe("t", "s")
            producer = await client.create_producer("t")
            threads = threading.active_count()
            waiting = [asyncio.ensure_future(consumer.receive()) for _ in range(100)]
            await asyncio.sleep(0.1)
            assert threading.active_count() <= threads + 4
            for each in waiting[::2]:
                each.cancel()
            await asyncio.gather(*(producer.send(b"%d" % number) for number in range(50)))
            received = await asyncio.gather(*waiting[1::2])
            assert [message.data() for message in received] == [b"%d" % number for number in range(50)]
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(consumer.receive(), 0.05)

    run(work())


def test_what_was_taken_for_a_call_that_was_cancelled_comes_to_the_next(broker, service_url):
    async def work():
        async with opened(service_url) as client:
            consumer = await client.subscribe("t", "s")
            producer = await client.create_producer("t")
            call = asyncio.ensure_future(consumer.receive())
            await asyncio.sleep(0)
            hand_out = consumer._hand_out
            consumer._hand_out = lambda taken: (hand_out(taken), taken.result() and call.cancel())
            await producer.send(b"x")
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await consumer.receive()).data() == b"x"

    run(work())


def test_what_ends_a_consumer_ends_the_calls_that_wait(broker, service_url):
    async def work():
        async with opened(service_url) as client:
            consumer = await client.subscribe("t", "s")
            waiting = [asyncio.ensure_future(consumer.receive()) for _ in range(3)]
            await asyncio.sleep(0.05)
            await consumer.close()
            for each in waiting:
                with pytest.raises(aio.PulsarException, match="AlreadyClosed"):
                    await each

    run(work())


def test_a_client_that_is_shut_down_leaves_no_call_waiting(broker, service_url):
    async def work():
        async with opened(service_url) as client:
            consumer = await client.subscribe("t", "s")
            reader = await client.create_reader("t", pulsar.MessageId.earliest)
            waiting = [asyncio.ensure_future(call()) for call in (consumer.receive, consumer.receive, reader.read_next)]
            await asyncio.sleep(0.05)
            client.shutdown()
            for each in waiting:
                with pytest.raises(aio.PulsarException, match="AlreadyClosed"):
                    await each

    run(work())


def test_the_loop_runs_on_while_a_producer_is_held(broker, service_url, monkeypatch):
    """A backlog above its quota holds the send, not the loop; when it is released the messages go in order."""

    async def work():
        async with opened(service_url) as client:
            producer = await client.create_producer("t")
            quota, is_held = producer._producer._quota, [True]

            def refusal(timeout, is_closed):
                return pulsar.ProducerBlockedQuotaExceededError("held") if is_held[0] else None

            monkeypatch.setattr(quota, "known_until", float("-inf"))
            monkeypatch.setattr(quota, "refusal", refusal)
            sends = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(3)]
            for _ in range(20):
                await asyncio.sleep(0.005)
            assert not any(send.done() for send in sends)
            is_held[0] = False
            quota.refusal = lambda timeout, is_closed=None: None
            ids = await asyncio.gather(*sends)
            assert ids == sorted(ids)

    run(work())


def test_a_full_queue_is_waited_for_or_refused(lonely_client, service_url):
    async def work():
        async with opened(service_url) as client:
            patient = await client.create_producer("t", max_pending_messages=2, block_if_queue_full=True)
            await asyncio.gather(*(patient.send(b"x") for _ in range(6)))
            await patient.close()
            hasty = await client.create_producer("t", max_pending_messages=2, batching_max_publish_delay_ms=1000)
            outcomes = await asyncio.gather(*(hasty.send(b"x") for _ in range(4)), return_exceptions=True)
            errors = [outcome.error() for outcome in outcomes if isinstance(outcome, aio.PulsarException)]
            assert errors == [pulsar.Result.ProducerQueueIsFull] * 2

    run(work())


def test_a_producer_that_nobody_waits_for_any_more_has_let_go(lonely_client, service_url, monkeypatch):
    async def work():
        async with opened(service_url) as client:
            create, begun = client._client.create_producer, threading.Event()

            def slow(**given):
                begun.set()
                time.sleep(0.05)
                return create(**given)

            monkeypatch.setattr(client._client, "create_producer", slow)
            call = asyncio.ensure_future(client.create_producer("t", access_mode=pulsar.ProducerAccessMode.Exclusive))
            while not begun.is_set():
                await asyncio.sleep(0.001)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            waiting = pulsar.ProducerAccessMode.WaitForExclusive
            producer = await client.create_producer("t", access_mode=waiting)
            await producer.send(b"x")
            assert client._client._open == [producer._producer]

    run(work())


def test_who_waits_for_a_topic_is_seen_by_others_until_it_is_cancelled(lonely_client, service_url):
    async def work():
        async with opened(service_url) as client:
            shared = await client.create_producer("t", "shared")
            wait = pulsar.ProducerAccessMode.WaitForExclusive
            first, second = (asyncio.ensure_future(client.create_producer("t", n, access_mode=wait)) for n in "ab")

            async def is_seen():
                try:
                    await (await client.create_producer("t", "late")).close()
                except aio.PulsarException as refused:
                    return refused.error() is pulsar.Result.ProducerBusy
                return False

            while not await is_seen():
                await asyncio.sleep(0.01)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            await shared.close()
            await (await second).send(b"x")
            with pytest.raises(aio.PulsarException, match="ProducerBusy"):
                await client.create_producer("t", "late")
            await (await second).close()
            await (await client.create_producer("t", "late")).send(b"y")

    run(work())


def test_a_producer_whose_flush_fails_is_closed_all_the_same(lonely_client, service_url, monkeypatch):
    async def work():
        async with opened(service_url) as client:
            producer = await client.create_producer("t", producer_name="p")

            async def late():
                raise aio.PulsarException(pulsar.Result.Timeout)

            monkeypatch.setattr(producer, "flush", late)
            with pytest.raises(aio.PulsarException, match="Timeout"):
                await producer.close()
            await (await client.create_producer("t", producer_name="p")).send(b"x")

    run(work())


def test_flush_publishes_an_open_batch(lonely_client, service_url):
    async def work():
        async with opened(service_url) as client:
            producer = await client.create_producer("t", batching_max_publish_delay_ms=60_000)
            sends = [asyncio.ensure_future(producer.send(b"x")) for _ in range(3)]
            await asyncio.sleep(0)
            await producer.flush()
            assert [(await send).batch_index() for send in sends] == [0, 1, 2]
            await producer.flush()

    run(work())


def test_a_reader_awaits_what_is_published(lonely_client, service_url):
    async def work():
        async with opened(service_url) as client:
            producer = await client.create_producer("t")
            reader = await client.create_reader("t", pulsar.MessageId.earliest)
            assert not await reader.has_message_available()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(reader.read_next(), 0.05)
            ids = [await producer.send(b"%d" % number) for number in range(3)]
            assert [(await reader.read_next()).data() for _ in ids] == [b"0", b"1", b"2"]
            await reader.seek(ids[0])
            assert (await reader.read_next()).data() == b"1"
            await reader.close()
            with pytest.raises(aio.PulsarException, match="AlreadyClosed"):
                await reader.close()
            assert not reader.is_connected()

    run(work())


def test_the_cursor_and_the_end_of_a_subscription(broker, service_url):
    async def work():
        async with opened(service_url) as client:
            producer = await client.create_producer("t", batching_enabled=False)
            ids = [await producer.send(b"%d" % number) for number in range(4)]
            consumer = await client.subscribe("t", "s", **SHARED, **EARLIEST, negative_ack_redelivery_delay_ms=100)
            first = await consumer.receive()
            await consumer.negative_acknowledge(first)
            received = {(await consumer.receive()).data() for _ in range(4)}
            assert received == {b"0", b"1", b"2", b"3"}
            assert await consumer.get_last_message_id() == ids[-1]
            with pytest.raises(aio.PulsarException) as refused:
                await consumer.acknowledge_cumulative(first)
            assert refused.value.error() is pulsar.Result.CumulativeAcknowledgementNotAllowedError
            await consumer.seek(ids[1])
            assert (await consumer.receive()).data() == b"2"
            await consumer.unsubscribe()
            with pytest.raises(aio.PulsarException, match="AlreadyClosed"):
                await consumer.receive()

    run(work())
    eventually(lambda: not broker.rounds.bundle.cursors)


def test_a_refusal_is_an_exception_that_knows_its_result(broker, service_url):
    async def work():
        async with opened(service_url) as client:
            await client.subscribe("t", "s")
            with pytest.raises(aio.PulsarException) as busy:
                await client.subscribe("t", "s")
            assert busy.value.error() is pulsar.Result.ConsumerBusy
            with pytest.raises(ValueError):
                await client.subscribe(["a.*"], "s", is_pattern_topic=True)
            with pytest.raises(ValueError):
                await client.create_producer("t", batching_enabled=True, chunking_enabled=True)
            assert await client.get_topic_partitions("t") == ["persistent://public/default/t"]
            await client.close()
            with pytest.raises(aio.PulsarException, match="AlreadyClosed"):
                await client.create_producer("t")

    run(work())


def test_a_loop_that_is_over_harms_nobody(broker, service_url):
    """What completes for it later is dropped; the client's threads live on."""
    client, consumers = aio.Client(service_url, operation_timeout_seconds=10), []

    async def work():
        consumers.append(await client.subscribe("t", "s", **SHARED))
        asyncio.ensure_future(consumers[0].receive())
        await asyncio.sleep(0.05)

    run(work())
    producer = pulsar.Client(service_url).create_producer("t")
    producer.send(b"x")
    eventually(lambda: consumers[0]._consumer._receiver._arrived)
    assert client._client._channel.failure is None
    client.shutdown()
    producer._client.close()
