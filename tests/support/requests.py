"""Requests as clients write them, one function a kind: rows of ``table_specs.REQUESTS`` as dicts, named after their
kind."""

from itertools import count

from pulsar_spark.protocol.redelivery.letters import (
    ATTEMPTS,
    RECONSUME_TIMES,
    ReconsumeLater,
    dead_letter_topic,
    retry_letter_topic,
)

PLACE = "PLACE"
"""The property in which letters asked for here say which message they are of: partition, position and batch index."""

_numbers = count(1)


def request(kind: str, *, client: str = "client", properties: dict | None = None, **columns) -> dict:
    """One row; a request id of its own, of the client's."""
    row = {"request_id": f"{client}-{next(_numbers)}", "kind": kind, "client_id": client, **columns}
    return row | ({"properties": {name: str(value) for name, value in properties.items()}} if properties else {})


class On:
    """Requests about one subscription of one topic partition.

    A consumer's id serves as its name unless another is given, and each consumer belongs to a client of its own,
    ``<consumer>@client``, unless a client is named.
    """

    def __init__(self, topic: str = "persistent://public/default/t", partition: int = -1, subscription: str = "s"):
        self.where = {"topic": topic, "partition": partition, "subscription": subscription}

    def _ask(self, kind: str, consumer: str | None = None, *, client: str | None = None, **columns) -> dict:
        client = client or (f"{consumer}@client" if consumer else "admin")
        return request(kind, client=client, consumer_id=consumer, **self.where, **columns)

    def subscribe(
        self,
        consumer: str,
        subscription_type: str = "Shared",
        *,
        initial_position: str = "Earliest",
        priority_level: int = 0,
        name: str | None = None,
        lease_ms: int = 30_000,
        client: str | None = None,
        **properties: object,
    ) -> dict:
        return self._ask(
            "subscribe",
            consumer,
            client=client,
            properties={
                "consumer_name": name or consumer,
                "subscription_type": subscription_type,
                "priority_level": priority_level,
                "initial_position": initial_position,
                "lease_ms": lease_ms,
                **properties,
            },
        )

    def flow(self, consumer: str, permits: int) -> dict:
        return self._ask("flow", consumer, permits=permits)

    def ack(
        self,
        first: int,
        last: int | None = None,
        *,
        ack_set: list[int] | None = None,
        consumer: str | None = None,
        receipt: bool = False,
        delivery_round: int | None = None,
    ) -> dict:
        properties = {"receipt": "true"} if receipt else {}
        if delivery_round is not None:
            properties["delivery_round"] = delivery_round
        return self._ask(
            "ack",
            consumer,
            first=first,
            last=first if last is None else last,
            ack_set=ack_set,
            properties=properties or None,
        )

    def cancel(self, first: int, last: int | None = None) -> dict:
        """Acknowledge what waits for its deliver time, of first..last."""
        properties = {"cancel": "true", "receipt": "true"}
        return self._ask("ack", first=first, last=first if last is None else last, properties=properties)

    def reschedule(self, first: int, last: int | None = None, *, deliver_at_ms: int) -> dict:
        """Give what waits for its deliver time, of first..last, another one, for this subscription."""
        properties = {"deliver_at_ms": deliver_at_ms}
        return self._ask("reschedule", first=first, last=first if last is None else last, properties=properties)

    def cumulative_ack(
        self, last: int, *, ack_set: list[int] | None = None, consumer: str | None = None, receipt: bool = False
    ) -> dict:
        return self._ask(
            "cumulative_ack", consumer, last=last, ack_set=ack_set, properties={"receipt": "true"} if receipt else None
        )

    def negative_ack(
        self, consumer: str, first: int, last: int | None = None, *, delay_ms: int = 0, is_unseen: bool = False
    ) -> dict:
        return self._ask(
            "negative_ack",
            consumer,
            first=first,
            last=first if last is None else last,
            delay_ms=delay_ms,
            properties={"is_unseen": "true"} if is_unseen else None,
        )

    def reconsume_later(
        self,
        position: int,
        *,
        consumer: str | None = None,
        batch_index: int | None = None,
        ack_set: list[int] | None = None,
        times: int = 1,
        letter_topic: str | None = None,
        is_dead: bool = False,
        receipt: bool = False,
        **asked,
    ) -> dict:
        """Put a message off the *times*-th time; the letter goes to the subscription's retry or dead letter topic
        unless one is named."""
        topic_of = dead_letter_topic if is_dead else retry_letter_topic
        index = -1 if batch_index is None else batch_index
        said = {PLACE: f"{self.where['partition']},{position},{index}", RECONSUME_TIMES: str(times)} | (
            {ATTEMPTS: str(times)} if is_dead else {}
        )
        letter = ReconsumeLater(
            letter_topic or topic_of(self.where["topic"], self.where["subscription"]),
            asked.pop("properties", {}) | said,
            is_dead,
            batch_index=batch_index,
            **asked,
        )
        return self._ask(
            "reconsume_later",
            consumer,
            first=position,
            last=position,
            ack_set=ack_set,
            properties=letter.request_properties() | ({"receipt": "true"} if receipt else {}),
        )

    def redeliver_all(self, consumer: str) -> dict:
        return self._ask("redeliver_all", consumer)

    def give_back_since(self, consumer: str, round_number: int, first: int | None = None) -> dict:
        return self._ask("redeliver_all", consumer, first=first, properties={"since_round": str(round_number)})

    def close(self, consumer: str) -> dict:
        return self._ask("close", consumer)

    def seek(
        self, position: int | str | None = None, *, publish_time_ms: int | None = None, consumer: str | None = None
    ) -> dict:
        target = {"position": position} if publish_time_ms is None else {"publish_time_ms": publish_time_ms}
        return self._ask("seek", consumer, properties=target)

    def unsubscribe(self, consumer: str | None = None, *, force: bool = False) -> dict:
        return self._ask("unsubscribe", consumer, properties={"force": "true"} if force else None)

    def create_subscription(self, initial_position: str = "Latest") -> dict:
        return self._ask("create_subscription", properties={"initial_position": initial_position})

    def skip(self, messages: int) -> dict:
        return self._ask("skip", properties={"messages": messages})

    def clear_backlog(self) -> dict:
        return self._ask("clear_backlog")

    def unload(self) -> dict:
        return self._ask("unload") | {"subscription": None}

    def expire(self, seconds: int) -> dict:
        return self._ask("expire", properties={"seconds": seconds})

    def policy(self, name: str, value: int | str | None = None) -> dict:
        """Set the topic's policy, or remove it."""
        return request(
            "policy",
            client="admin",
            topic=self.where["topic"],
            properties={"name": name} | ({} if value is None else {"value": value}),
        )


def keep_alive(consumer: str) -> dict:
    """The sign of life of the client that :class:`On` gives a consumer."""
    return request("keep_alive", client=f"{consumer}@client")


def leave(consumer: str) -> dict:
    """The close of that whole client."""
    return request("close", client=f"{consumer}@client")
