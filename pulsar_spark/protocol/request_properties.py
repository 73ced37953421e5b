"""Read booleans and whole numbers from the properties of a request, which are texts."""

import re
from collections.abc import Mapping

from pulsar_spark.errors import InvalidConfiguration, shown

MOST = 10**15
"""The highest number in a request; milliseconds up to it fit into a table's timestamp."""


def is_true(properties: Mapping[str, str], name: str) -> bool:
    """Whether a property is "true"; False if absent, :class:`InvalidConfiguration` if neither "true" nor "false".

    >>> is_true({"force": "true"}, "force"), is_true({}, "force")
    (True, False)
    """
    value = properties.get(name, "false")
    if value not in ("true", "false"):
        raise InvalidConfiguration(f"{name} {shown(value)}: give 'true' or 'false'")
    return value == "true"


def number_in(
    properties: Mapping[str, str],
    name: str,
    default: int | None = None,
    *,
    of: str,
    least: int = -MOST,
    most: int = MOST,
) -> int:
    """The whole number in a property; *default* if it is absent. :class:`InvalidConfiguration`, naming the request
    (*of*), unless it is from *least* to *most*.

    >>> number_in({"batch_index": "3"}, "batch_index", of="reconsume_later", least=0)
    3
    """
    value = properties.get(name)
    if value is None and default is not None:
        return default
    if value is None or not re.fullmatch("-?[0-9]{1,18}", value) or not least <= int(value) <= most:
        raise InvalidConfiguration(f"{of}: {name} {shown(value)} is not a whole number from {least} to {most}")
    return int(value)
