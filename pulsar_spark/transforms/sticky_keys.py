"""The hash of a message's sticky key in frames of messages, and their order by key.

The hash is the one the broker goes by: stored by the producer, or computed from the key where nobody stored it
(storage.key_hashes does the same without Spark). It is that of the message's own key, which for a batch may be another
than that of its entry (semantics 2.22).
"""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_spark.protocol.sticky_key import NONE_KEY
from pulsar_spark.table_specs import HASH, KEY_COLUMNS, MESSAGE_KEYS
from pulsar_spark.transforms.key_hashes import hash_keys

ORDER = (HASH, "partition", "position", "batch_index")
_BASE64 = r"\A[A-Za-z0-9+/]*={0,2}\z"
_COMPUTED = "computed_sticky_key_hash"


def with_hash(messages: DataFrame, key_columns: Collection[str] = KEY_COLUMNS) -> DataFrame:
    """The same with a hash in every row; *messages* have those of the :data:`KEY_COLUMNS` that are given, the others
    would be null.

    A filter on the hash must not be moved below it: the optimizer would write each step of the computation once for
    every time the next one uses it, which is more code than fits into memory. It moves none below a column that may
    differ each time it is computed, as the last one here, of which no row has need, is declared to be.
    """
    computed = hash_keys(messages, _sticky_key(key_columns), _COMPUTED)
    once = F.coalesce(F.col(HASH), F.col(_COMPUTED), F.monotonically_increasing_id().cast("int"))
    return computed.withColumn(HASH, once).drop(_COMPUTED)


def by_key(messages: DataFrame) -> DataFrame:
    """All rows of a key in one task, in order; keys of one hash lie between each other."""
    return messages.repartition(HASH).sortWithinPartitions(*ORDER)


def _sticky_key(key_columns: Collection[str]) -> Column:
    """Null where nobody needs it, because the hash is stored."""
    key = F.lit(NONE_KEY)
    for name in MESSAGE_KEYS:
        if name in key_columns:
            is_coded = f"{name}_b64_encoded" in key_columns
            key = F.when(F.col(name).isNull(), key).otherwise(
                _bytes_of(name) if is_coded else F.col(name).cast("binary")
            )
    return F.when(F.col(HASH).isNull(), key)


def _bytes_of(name: str) -> Column:
    """The bytes of a key that may be base64, and is none if it is to be base64 and is not: Spark's decoder passes over
    white space, which Java's does not."""
    key, is_base64 = F.col(name), F.coalesce(F.col(f"{name}_b64_encoded"), F.lit(False))
    text = key.cast("string")
    missing = F.when(F.contains(text, F.lit("=")), 0).otherwise(F.pmod(-F.length(text), F.lit(4)))
    padded = F.concat(text, F.repeat(F.lit("="), missing))
    is_whole = (F.length(padded) % 4 == 0) & padded.rlike(_BASE64)
    decoded = F.when(is_whole, F.unbase64(padded)).otherwise(F.lit(NONE_KEY))
    return F.when(is_base64, decoded).otherwise(key.cast("binary"))
