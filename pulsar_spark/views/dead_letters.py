"""Count dead letters by cause, read from the tables without Spark."""

from collections import Counter, defaultdict
from datetime import datetime

import pyarrow.compute as pc

from pulsar_spark.protocol.redelivery.letters import CAUSE, UNKNOWN_CAUSE
from pulsar_spark.storage.cursor_ledger.reprocessing import Reprocessing
from pulsar_spark.storage.delta.scan import dataset_of, read_rows, reading
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic

_COLUMNS = ["properties", "publish_time", "chunk_id", "num_chunks_from_msg"]


def count_letters(layout: Layout, topic: Topic) -> list[dict]:
    """A row for each cause, most letters first: ``cause``, ``letters``, ``sent`` (sent back by a job), ``first_time``
    and ``last_time`` of writing. A chunked letter counts once."""
    letters: Counter[str] = Counter()
    times: defaultdict[str, list[datetime]] = defaultdict(list)
    with reading(topic.path):
        for batch in dataset_of(topic.path).to_batches(columns=_COLUMNS):
            is_last = pc.equal(pc.add(batch["chunk_id"], 1), batch["num_chunks_from_msg"])
            whole = batch.filter(pc.fill_null(is_last, True))
            columns = (whole[name].to_pylist() for name in ("properties", "publish_time"))
            for properties, time in zip(*columns, strict=True):
                cause = dict(properties or ()).get(CAUSE, UNKNOWN_CAUSE)
                letters[cause] += 1
                times[cause] = [min([*times[cause], time]), max([*times[cause], time])]
    sent = _sent(layout, topic)
    return [
        {
            "cause": cause,
            "letters": count,
            "sent": min(count, sent[cause]),  # some of those sent may be trimmed
            "first_time": times[cause][0],
            "last_time": times[cause][1],
        }
        for cause, count in sorted(letters.items(), key=lambda each: (-each[1], each[0]))
    ]


def _sent(layout: Layout, topic: Topic) -> Counter[str]:
    table = Reprocessing(layout)
    if not table.exists():
        return Counter()
    is_its = (pc.field("kind") == "sent") & (pc.field("topic_id") == topic.topic_id)
    rows = read_rows(table.path, ["message_id", "cause"], is_its).to_pylist()
    return Counter({row["message_id"]: row["cause"] for row in rows}.values())
