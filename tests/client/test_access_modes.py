"""Producers that have a topic for themselves."""

import contextlib
import errno
import inspect
import os
import subprocess
import sys
import threading

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.client.sending.producer_settings import producer_settings
from pulsar_spark.client.sending.producing import ProducerOpening
from pulsar_spark.storage.topics import exclusive
from pulsar_spark.storage.topics.producers import TopicProducers
from pulsar_spark.storage.topics.topics import read_topic
from tests.support.waiting import eventually, receive_values

MODE = pulsar.ProducerAccessMode


def producer(client, name: str, mode: pulsar.ProducerAccessMode = MODE.Shared, **options):
    return client.create_producer("t", producer_name=name, access_mode=mode, **options)


def opening(client, name: str) -> ProducerOpening:
    """A producer that is to wait, and looks when it is told to."""
    given = inspect.signature(pulsar.Client.create_producer).parameters
    defaults = {key: each.default for key, each in given.items() if key not in ("self", "topic")}
    options = {**defaults, "producer_name": name, "access_mode": MODE.WaitForExclusive}
    return ProducerOpening(client, "t", producer_settings(options))


def test_an_exclusive_producer_is_alone(lonely_client):
    first = producer(lonely_client, "first", MODE.Exclusive)
    with pytest.raises(pulsar.ProducerFenced, match="'first'"):
        producer(lonely_client, "second", MODE.Exclusive)
    with pytest.raises(pulsar.ProducerBusy, match="'first'"):
        producer(lonely_client, "second")
    first.send(b"x")
    first.close()
    second = producer(lonely_client, "second")
    second.send(b"y")
    second.close()
    producer(lonely_client, "third", MODE.Exclusive).send(b"z")


def test_a_name_is_one_producer_s(lonely_client, service_url):
    first = producer(lonely_client, "p")
    with pytest.raises(pulsar.ProducerBusy, match="'p'"):
        producer(lonely_client, "p")
    with contextlib.closing(pulsar.Client(service_url)) as other, pytest.raises(pulsar.ProducerBusy):
        producer(other, "p")
    first.close()
    producer(lonely_client, "p").send(b"x")


def test_a_name_is_in_use_on_the_partitions_it_publishes_to(lonely_client, service_url):
    Admin(service_url).create_partitioned_topic("p", 2)
    lonely_client.create_producer("p-partition-0", producer_name="p")
    lonely_client.create_producer("p-partition-1", producer_name="p").close()
    with pytest.raises(pulsar.ProducerBusy):
        lonely_client.create_producer("p", producer_name="p")


def test_stats_name_the_producers_of_each_partition(lonely_client, service_url):
    """As Pulsar's ``publishers`` do; who waits for the topic is none yet."""
    admin = Admin(service_url)
    admin.create_partitioned_topic("p", 2)
    of_all = lonely_client.create_producer("p", producer_name="of all")
    lonely_client.create_producer("p-partition-1", producer_name="b")
    waits = TopicProducers(read_topic(lonely_client._layout, "p").path, "waits", [0, 1])
    waits.enter(is_waiting=True)

    def publishers(topic: str) -> list[str]:
        return [each["producerName"] for each in admin.stats(topic)["publishers"]]

    assert (publishers("p"), publishers("p-partition-0")) == (["b", "of all"], ["of all"])
    of_all.close()
    assert (publishers("p"), publishers("p-partition-1")) == (["b"], ["b"])
    waits.enter()
    assert publishers("p-partition-0") == ["waits"]


def test_nobody_is_alone_while_others_are_there(lonely_client):
    first, second = producer(lonely_client, "first"), producer(lonely_client, "second")
    with pytest.raises(pulsar.ProducerFenced, match="'first'|'second'"):
        producer(lonely_client, "third", MODE.Exclusive)
    first.close()
    second.close()
    producer(lonely_client, "third", MODE.Exclusive).send(b"x")


def test_nobody_comes_while_another_waits_for_the_topic(lonely_client):
    shared, waiting = producer(lonely_client, "shared"), []
    thread = threading.Thread(target=lambda: waiting.append(producer(lonely_client, "w", MODE.WaitForExclusive)))
    thread.start()

    def is_refused():
        try:
            producer(lonely_client, "late").close()
        except pulsar.ProducerBusy as busy:
            return "'w' waits" in str(busy)

    eventually(is_refused)
    shared.send(b"1")
    shared.close()
    thread.join(60)
    assert waiting[0].send(b"2")


def test_who_waits_for_a_topic_and_is_closed_waits_no_more(lonely_client, service_url):
    shared, refused = producer(lonely_client, "shared"), []
    other = pulsar.Client(service_url)

    def wait():
        with pytest.raises(pulsar.AlreadyClosed):
            producer(other, "w", MODE.WaitForExclusive)
        refused.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    other.close()
    thread.join(60)
    shared.close()
    assert refused and producer(lonely_client, "late").send(b"x")


def test_who_waited_longest_gets_it_whoever_looks_first(lonely_client, service_url):
    """Five of two processes' clients wait; the last to come look first, each time."""
    holder = producer(lonely_client, "holder", MODE.Exclusive)
    other = pulsar.Client(service_url)
    openings = []
    for number in range(5):
        openings.append(opening(other if number % 2 else lonely_client, f"w{number}"))
        assert openings[-1].attempt() is None
    for expected in range(5):
        assert [each.attempt() for each in reversed(openings)] == [None] * len(openings)
        holder.close()
        found = [each.attempt() for each in reversed(openings)]
        assert [each is not None for each in found] == [False] * (len(openings) - 1) + [True]
        holder = found[-1]
        assert holder.producer_name() == f"w{expected}" and holder.send(b"x")
        del openings[0]
    other.close()


def test_one_that_comes_when_a_topic_is_free_waits_behind_those_that_wait(lonely_client):
    holder = producer(lonely_client, "holder", MODE.Exclusive)
    waiting = opening(lonely_client, "waits")
    assert waiting.attempt() is None
    holder.close()
    late = opening(lonely_client, "late")
    assert late.attempt() is None and late.attempt() is None
    first = waiting.attempt()
    assert first.producer_name() == "waits" and late.attempt() is None
    first.close()
    assert late.attempt().producer_name() == "late"


def test_who_gives_up_waiting_keeps_nobody_behind_it(lonely_client):
    holder = producer(lonely_client, "holder", MODE.Exclusive)
    first, second = opening(lonely_client, "first"), opening(lonely_client, "second")
    assert first.attempt() is second.attempt() is None
    first.give_up()
    holder.close()
    assert second.attempt().producer_name() == "second"


def test_who_waits_gets_it_when_the_other_leaves(lonely_client):
    first, second = producer(lonely_client, "first", MODE.Exclusive), []
    thread = threading.Thread(target=lambda: second.append(producer(lonely_client, "second", MODE.WaitForExclusive)))
    thread.start()
    first.send(b"x")
    assert not second
    first.close()
    thread.join(60)
    second[0].send(b"y")


def test_who_fences_takes_it_from_everybody(client):
    consumer = client.subscribe("t", "s")
    shared, first = producer(client, "shared"), producer(client, "first", MODE.ExclusiveWithFencing)
    first.send(b"1")
    second = producer(client, "second", MODE.ExclusiveWithFencing)
    for fenced in (first, shared):
        for _ in range(2):
            with pytest.raises(pulsar.ProducerFenced, match="'second'"):
                fenced.send(b"no")
    results = []
    first.send_async(b"no", lambda result, message_id: results.append(result))
    eventually(lambda: results == [pulsar.Result.ProducerFenced])
    first.close()
    second.send(b"2")
    assert receive_values(consumer, 2) == ["1", "2"]
    second.close()
    shared.send(b"3")
    with pytest.raises(pulsar.AlreadyClosed):
        first.send(b"no")
    assert receive_values(consumer, 1) == ["3"]


def test_a_commit_that_is_under_way_lies_before_the_claim_or_is_refused(lonely_client, monkeypatch):
    """The claim comes between a producer's look and its link: the version is taken, and the second look sees why."""
    shared = producer(lonely_client, "shared")
    check, claims = shared._access.claim.check, []

    def looked():
        check()
        if not claims:
            claims.append(producer(lonely_client, "other", MODE.ExclusiveWithFencing))

    shared._publisher._table._table._check = looked
    with pytest.raises(pulsar.ProducerFenced):
        shared.send(b"no")
    reader = lonely_client.create_reader("t", pulsar.MessageId.earliest)
    claims[0].send(b"yes")
    assert reader.read_next(1000).data() == b"yes"
    assert not reader.has_message_available()


def test_of_many_who_claim_at_once_one_wins(lonely_client):
    lonely_client.create_producer("t").close()
    outcomes = []

    def claim(name: str) -> None:
        try:
            outcomes.append(producer(lonely_client, name, MODE.Exclusive))
        except pulsar.ProducerFenced:
            outcomes.append(None)

    threads = [threading.Thread(target=claim, args=(f"p{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = filter(None, outcomes)
    assert len(outcomes) == 8 and winner.send(b"x")


@pytest.mark.parametrize("mode", [MODE.Shared, pytest.param(MODE.Exclusive, marks=pytest.mark.local_disk)])
def test_a_process_that_is_gone_has_let_go(lonely_client, service_url, mode):
    program = (
        "import os, pulsar_spark as pulsar\n"
        f"client = pulsar.Client({service_url!r})\n"
        f"mode = pulsar.ProducerAccessMode.{mode.name}\n"
        "client.create_producer('t', producer_name='next', access_mode=mode).send(b'x')\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, env=os.environ)
    assert producer(lonely_client, "next", MODE.Exclusive).send(b"y").ledger_id() > 0


@pytest.mark.local_disk
def test_a_claim_that_is_not_renewed_ends_and_its_owner_goes_on_until_somebody_claims(lonely_client, monkeypatch):
    monkeypatch.setattr(exclusive, "LEASE_SECONDS", 0.01)
    first = producer(lonely_client, "first", MODE.Exclusive)
    eventually(lambda: exclusive.ExclusiveClaim(first._publisher._topic.path, "t", "x").holder() is None)
    first.send(b"x")
    monkeypatch.setattr(exclusive, "LEASE_SECONDS", 10.0)
    first._access.claim.renew()
    with pytest.raises(pulsar.ProducerBusy):
        producer(lonely_client, "second")
    producer(lonely_client, "third", MODE.ExclusiveWithFencing)
    first._access.claim.renew()
    with pytest.raises(pulsar.ProducerFenced, match="'third'"):
        first.send(b"x")


@pytest.mark.parametrize("mode", [MODE.Exclusive, MODE.WaitForExclusive, MODE.ExclusiveWithFencing])
def test_who_claims_a_topic_and_fails_has_let_go(lonely_client, monkeypatch, mode):
    def failing(*args):
        raise OSError(errno.EIO, "the claim's commit")

    with monkeypatch.context() as patched:
        patched.setattr(exclusive.AppendTable, "append_transaction", failing)
        with pytest.raises(OSError, match="the claim's commit"):
            producer(lonely_client, "first", mode)
    producer(lonely_client, "second").close()
    assert producer(lonely_client, "third", MODE.Exclusive).send(b"x")


def test_what_is_made_while_the_client_is_closed_is_let_go(lonely_client, service_url):
    other = pulsar.Client(service_url)

    class Closing(pulsar.schema.StringSchema):
        def schema_info(self):
            if not other._is_closed:
                other.close()
            return super().schema_info()

    with pytest.raises(pulsar.AlreadyClosed, match="closed"):
        other.create_producer("t", producer_name="p", access_mode=MODE.Exclusive, schema=Closing())
    assert not other._claims._looks and not other._open
    assert producer(lonely_client, "p").send(b"x")


def test_a_claim_that_was_let_go_is_not_renewed(lonely_client):
    """The thread that renews it may have begun to when the producer closes."""
    first = producer(lonely_client, "first", MODE.Exclusive)
    first.close()
    first._access.claim.renew()
    assert producer(lonely_client, "second").send(b"x")


def test_a_topic_is_had_as_a_whole(lonely_client, service_url):
    Admin(service_url).create_partitioned_topic("p", 2)
    with pytest.raises(pulsar.OperationNotSupported, match="a whole topic"):
        lonely_client.create_producer("p-partition-0", access_mode=MODE.Exclusive)
    assert lonely_client.create_producer("p", access_mode=MODE.Exclusive).send(b"x")
    with pytest.raises(pulsar.ProducerBusy):
        lonely_client.create_producer("p-partition-0")
