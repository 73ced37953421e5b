"""Read with the data source's classes in the test's process, as Spark's Python workers would."""

import pickle

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from pulsar_spark.admin.upkeep import trim
from pulsar_spark.frames.source.data_source import PulsarSparkSource
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import ledgers_of_topic
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.waiting import eventually


def source(root, **options: object) -> PulsarSparkSource:
    return PulsarSparkSource(CaseInsensitiveDict({"root": str(root), **{name: str(v) for name, v in options.items()}}))


def read_batch(root, schema=None, **options: object) -> pa.Table:
    """The rows of a batch read, in the order of its slices."""
    made = source(root, **options)
    reader = made.reader(schema or made.schema())
    return read_slices(reader, reader.partitions(), schema or made.schema())


def read_slices(reader, slices: list[InputPartition], schema) -> pa.Table:
    reader, slices = pickle.loads(pickle.dumps((reader, slices)))
    found = [batch for each in slices for batch in reader.read(each)]
    wanted = to_arrow_schema(schema, timezone="UTC")
    assert all(batch.schema == wanted for batch in found)
    return pa.Table.from_batches(found, wanted)


def trim_before(root, topic: str, position: int) -> None:
    """Trim a topic without partitions, once a broker has numbered it up to there."""
    layout = Layout(root)
    topic_id = read_topic(layout, topic).topic_id

    def is_numbered() -> bool:
        found = ledgers_of_topic(layout, topic_id)
        return -1 in found and found[-1].end_position >= position

    with PlainBroker(str(root)):
        eventually(is_numbered)
    trim(layout, topic, before=position)
