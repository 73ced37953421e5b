"""Reading the messages of a delivery, by the thread that takes them.

What is no longer there is passed over: deleted messages are acknowledged, so that they come to nobody again; lost ones
are an error with a name. Where entries of a lane are gone, their keys are gone too: those that had none are of the lane
that holds the hash of no key; others were sent with a delivery that counts more entries than there are, and are told of
with all that is gone between its ends.
"""

from collections.abc import Generator, Iterator

from pulsar_spark.client.delivery import Delivery
from pulsar_spark.client.message import Block, Message
from pulsar_spark.errors import MessagesLost
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.missing import Missing, lost_error


def read_messages(subscription, delivery: Delivery) -> Generator[Message | MessagesLost, None, int]:
    """The delivery's messages in order, without those whose batch index is acknowledged already, and errors; in the end
    the number of messages. None of a dead one, which is given back."""
    topic, positions, bits = subscription.topic, subscription.positions_of(delivery), delivery.bits
    if delivery.is_dead:
        subscription.tracker.give_back(set(positions.tolist()), 0)
        return 0
    messages = 0
    for run, spans in delivery.parts(subscription.ledgers, topic, subscription.partition):
        for rows in subscription.entries.read(topic.path, run, spans):
            if isinstance(rows, Missing):
                yield from _pass_over(subscription, delivery, run, rows)
                continue
            block = Block(rows, subscription.topic_name, subscription.partition, run.ledger_id)
            for index, position in enumerate(block.column("position")):
                if bits is None or bits >> block.column("batch_index")[index] & 1:
                    messages += 1
                    yield Message(block, index, subscription.schema, position, delivery)
    if len(positions) < delivery.entries:
        yield from _pass_over_unknown(subscription, delivery)
    return messages


def _pass_over(subscription, delivery: Delivery, run: Run, missing: Missing) -> Iterator[MessagesLost]:
    if delivery.generation != subscription.generation:
        return
    if missing.is_lost:
        yield lost_error(subscription.topic.path, run, missing)
        return
    subscription.tell_deleted([(first + run.to_position, last + run.to_position) for first, last in missing.whole])
    wanted = delivery.unacked_bits
    for entry, indexes in missing.parts.items():
        for index in indexes:
            if wanted >> index & 1:
                subscription.tracker.acknowledge(entry + run.to_position, index, wanted)


def _pass_over_unknown(subscription, delivery: Delivery) -> Iterator[MessagesLost]:
    """Entries that are gone since they were sent, with all that are gone between the ends of the delivery."""
    topic = subscription.topic
    for run in subscription.ledgers.runs(topic.topic_id, subscription.partition, delivery.first, delivery.last):
        for rows in subscription.entries.read(topic.path, run, columns=()):
            if isinstance(rows, Missing) and rows.whole:
                yield from _pass_over(subscription, delivery, run, rows._replace(parts={}))
