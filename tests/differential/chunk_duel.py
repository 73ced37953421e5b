"""Histories of chunked messages: what is promised of them, asked of every round.

As of delayed messages, the promises are worked out from what was published and delivered alone: nothing is delivered
but whole messages, each with just its own chunks and their bytes in order, and in the end all that are complete were
delivered or done. What was begun and is not complete is told to whoever asks.
"""

from pulsar_spark.storage.chunks.chunks import ChunkedMessages
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.views.chunks import read_incomplete
from tests.differential.delay_duel import DelayedDuel
from tests.differential.duel import same
from tests.differential.strategies import Turn
from tests.support import chunk_rows
from tests.support.model_chunks import Chunk
from tests.support.model_cursor import Delivery


class ChunkedDuel(DelayedDuel):
    def play(self, turns: list[Turn]) -> None:
        super().play(turns)
        for (topic, partition), chunks in self.model.chunks.items():
            state = self.engine.rounds.bundle.topic(topic)
            told = [row for rows in read_incomplete(state.topic, partition, state.ledgers(partition)) for row in rows]
            found = {row["first"]: row["is_open"] for row in told if row["first"] in chunks.attempts}
            begun = {first: end is None for first, end in chunks.attempts.items() if not chunks.ends_complete(first)}
            same(f"what is incomplete in {topic} {partition}", found, begun)

    def _compare(self, found: dict, expected: dict, where: str) -> None:
        for delivery in found["deliveries"]:
            wrong = _not_whole(delivery, self.model.chunks[delivery[:2]].entries)
            assert not wrong, f"{where}: {delivery} {wrong}"
            if delivery.chunks is not None:
                self._compare_bytes(delivery, where)
        super()._compare(found, expected, where)

    def _compare_bytes(self, delivery: Delivery, where: str) -> None:
        """What consumers read who are told where the message begins and ends."""
        entries, state = (self.model.chunks[delivery[:2]].entries, self.engine.rounds.bundle.topic(delivery.topic))
        first, last = delivery.chunks[0], delivery.chunks[-1]
        chunked = ChunkedMessages(state.topic.path, EntryReader(), state.ledgers(delivery.partition).spans_of)
        found = chunked.joined(chunked.parts({last: first})[last])
        expected = b"".join(chunk_rows.payload_of(entries[position]) for position in delivery.chunks)
        same(f"{where}, bytes of {delivery}", found, expected)


def _not_whole(delivery: Delivery, entries: list[Chunk | None]) -> str | None:
    """Why what was delivered is no message as its producer sent it."""
    last = entries[delivery.position]
    if last is None:
        return None if delivery.chunks is None else "has chunks of others"
    if delivery.chunks is None or delivery.chunks[-1] != delivery.position:
        return "is not the last of its chunks"
    of_message = [entries[position] for position in delivery.chunks]
    if sorted(delivery.chunks) != list(delivery.chunks) or None in of_message:
        return "has chunks out of order"
    sent = [last._replace(chunk_id=chunk_id) for chunk_id in range(last.num_chunks)]
    return None if of_message == sent else f"is put together of {of_message}"
