"""The owner of one hash, by a selector."""

from pulsar_spark.protocol.keys.hash_ranges import owner
from pulsar_spark.protocol.keys.selectors import Selector


def select(selector: Selector, hash_code: int) -> str | None:
    return owner(selector.owned(), selector.axis, hash_code)
