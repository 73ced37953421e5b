"""The names in SQL under which ``views.catalog`` registers a root's tables."""

from collections.abc import Mapping
from types import MappingProxyType

from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.layout import encode_name


def topic_table(topic: str, prefix: str = "", schemas: Mapping[str, str] = MappingProxyType({})) -> str:
    """The topic's quoted name.

    >>> topic_table("acme/billing/Orders")
    '`spark_catalog`.`acme_ns_billing`.`_4frders`'
    """
    name = parse_topic_name(topic)
    schema = schemas.get(f"{name.tenant}/{name.namespace}")
    schema = schema or f"{prefix}{_encoded(name.tenant)}_ns_{_encoded(name.namespace)}"
    return f"`spark_catalog`.`{schema}`.`{_encoded(name.local_name)}`"


def broker_table(table: str) -> str:
    """The quoted name of a table of the broker."""
    return f"`spark_catalog`.`pulsar_spark`.`{table}`"


def _encoded(name: str) -> str:
    return encode_name(name).replace("-", "_2d").replace(".", "_2e")
