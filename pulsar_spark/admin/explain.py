"""One message explained."""

from pulsar_spark.client.arguments import check_type
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.topic_name import check_subscription
from pulsar_spark.storage.layout import Layout
from pulsar_spark.views.explain.explanation import explain


class ExplainVerb:
    """Part of ``Admin`` that explains messages."""

    layout: Layout

    def explain(self, message_id: MessageId, subscription: str | None = None, topic: str | None = None) -> dict:
        """Why the message *message_id* is where it is, by subscription, and what its producer said of it. Needs no
        broker.

        *topic* is needed only if the id does not name its topic. Under ``subscriptions`` each has ``why``, a word that
        programs can compare, ``sentence``, and facts such as ``consumerName`` and ``until``. ``life`` has the events of
        these subscriptions since the publish, oldest first, as far as rounds are kept. Of a batch the id names one
        message, or all of them.
        """
        check_type(MessageId, message_id, "message_id")
        if subscription is not None:
            check_subscription(subscription)
        return explain(self.layout, message_id, topic, subscription)
