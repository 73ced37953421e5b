"""Letters of chunked messages, which have all chunks. A letter is counted by its last chunk; the others are read when
it is written, one large message at a time."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.errors import MessagesLost
from pulsar_spark.protocol.acknowledgement.positions import distinct
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.storage.chunks.chunk_rows import lost_messages
from pulsar_spark.storage.chunks.chunks import ChunkedMessages
from pulsar_spark.storage.entries.entries import EntryReader

NO_PARTS = np.empty(0, np.int64)


class Whole(NamedTuple):
    """A chunked message: positions of its chunks, and the first one's id."""

    chunked: ChunkedMessages
    parts: np.ndarray
    first_chunk: MessageId

    def rows(self) -> pa.Table:
        return self.chunked.rows(self.parts)


def wholes_of(
    state: TopicState, partition: int, messages: pa.Table, numbers: np.ndarray
) -> dict[int, Whole | MessagesLost | None]:
    """For chunks among rows *numbers* of *messages*, the message that ends there: an error if chunks are lost, None if
    it is gone."""
    if messages["uuid"].null_count == messages.num_rows:
        return {}
    wanted = messages.select(["position", "uuid", "batch_index"]).take(pa.array(distinct(numbers)))
    wanted = wanted.filter(pc.and_(pc.is_valid(wanted["uuid"]), pc.is_null(wanted["batch_index"])))
    if not wanted.num_rows:
        return {}
    positions, spans_of = wanted["position"].to_numpy(), state.ledgers(partition).spans_of
    chunked = ChunkedMessages(state.topic.path, EntryReader(), spans_of)
    firsts, lasts = state.chunks(partition).units(int(positions[0]), int(positions[-1]))
    units = {last: first for first, last in zip(firsts.tolist(), lasts.tolist())}
    units = {last: units[last] for last in positions.tolist() if last in units}
    made_of = chunked.parts(units)
    incomplete = {last: first for last, first in units.items() if not len(made_of[last])}
    lost = lost_messages(state.topic.path, spans_of, incomplete, ("uuid",)) if incomplete else {}
    return {
        position: lost.get(position) or _whole(chunked, partition, made_of.get(position, NO_PARTS))
        for position in positions.tolist()
    }


def _whole(chunked: ChunkedMessages, partition: int, parts: np.ndarray) -> Whole | MessagesLost | None:
    try:
        if not len(parts) or not chunked.are_there(parts):
            return None
    except MessagesLost as lost:
        return lost
    ((run, _),) = chunked.spans_of([(int(parts[0]), int(parts[0]))])
    return Whole(chunked, parts, MessageId(partition, run.ledger_id, int(parts[0]) - run.to_position))


def expanded(messages: pa.Table, wholes: Sequence[Whole | None]) -> tuple[pa.Table, np.ndarray]:
    """*messages*, with all chunks for each last one, and the rows of each message."""
    counts, tables, begin = np.ones(len(wholes), np.int64), [], 0
    for number, whole in enumerate(wholes):
        if whole is None:
            continue
        rows = whole.rows().select(messages.column_names)
        tables += [messages.slice(begin, number - begin), rows]
        counts[number], begin = rows.num_rows, number + 1
    return pa.concat_tables([*tables, messages.slice(begin)]), counts
