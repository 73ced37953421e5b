"""Administration."""

from pulsar_spark import NotAllowedError
from pulsar_spark.admin import Admin


def main() -> None:
    admin = Admin("delta:/data/pulsar", timeout_seconds=5)
    admin.create_namespace("acme/shop")
    admin.create_partitioned_topic("orders", 4)
    admin.create_topic("plain")
    for topic in admin.topics("public/default"):
        stats = admin.stats(topic)
        print(stats["msgBacklog"], admin.subscriptions(topic))
    admin.create_subscription("orders", "billing", "earliest")
    admin.reset_cursor("orders", "billing", "earliest")
    admin.skip_messages("orders", "billing", 5)
    for message in admin.peek_messages("orders-partition-0", "billing", 5):
        print(message.message_id(), message.data())
    admin.set_policy("public/default", "message_ttl_seconds", 86400)
    policies: dict[str, str] = admin.get_policies("public/default")
    print(policies)
    try:
        admin.delete_topic("orders", force=True)
    except NotAllowedError as refused:
        print(str(refused))
    admin.compact("orders")
