"""Find the chunks of messages whose ends are known, and join their payloads."""

import io
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.errors import UnreadableMessage
from pulsar_spark.protocol.acknowledgement.positions import Positions, ranges_of
from pulsar_spark.protocol.chunks.chunking import parts_of, wrong_size
from pulsar_spark.storage.chunks.chunk_rows import SpansOf, read_chunks
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.processes.threads import Threads
from pulsar_spark.storage.store.store import AnyPath

_PAYLOAD, _SIZE = "payload", "total_chunk_msg_size"
_PLACE = ("uuid", "producer_name", "num_chunks_from_msg", "chunk_id")

_AT_ONCE_BYTES = 64 << 20


def _buffers_of(column: pa.ChunkedArray) -> Iterator[pa.Buffer | bytes]:
    """The values of a binary column, without copies; nothing for null."""
    for values in column.chunks:
        _, offsets, data = values.buffers()
        offsets = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].tolist()
        for begin, end, is_there in zip(offsets, offsets[1:], values.is_valid().to_pylist()):
            yield data.slice(begin, end - begin) if is_there and end > begin else b""


class _Payload:
    """Joins pieces of a payload in memory of its own; large ones gradually, so that few pieces stay in memory."""

    def __init__(self):
        self.size, self._pieces, self._joined = 0, [], io.BytesIO()

    def add(self, piece: pa.Buffer | bytes) -> None:
        self.size += len(piece)
        self._pieces.append(piece)
        if self.size - self._joined.tell() > _AT_ONCE_BYTES:
            self._joined.writelines(self._pieces)
            self._pieces = []

    def whole(self) -> bytes:
        if not self._joined.tell():
            return b"".join(self._pieces)
        self._joined.writelines(self._pieces)
        return self._joined.getvalue()


class PayloadMemory:
    """Memory for one payload after another. It is reused if nobody holds the payload before any more."""

    def __init__(self):
        self._memory = np.empty(0, np.uint8)
        self._last: Callable[[], object] = lambda: None

    def of(self, size: int) -> np.ndarray:
        if len(self._memory) < size or self._last() is not None:
            # not np.empty, which asks the kernel for pages of 2 MiB and waits for them
            self._memory = np.frombuffer(pa.allocate_buffer(size), np.uint8)
        found = self._memory[:size]
        self._last = weakref.ref(found)
        return found


class _Placed:
    """Joins pieces of a payload in *memory*.

    The size that the producer stated may be wrong. So it takes as much memory as its *pieces* need if all are as large
    as the first, and more if they are larger.
    """

    def __init__(self, memory: PayloadMemory, pieces: int):
        self.size, self._memory, self._pieces, self._bytes = 0, memory, pieces, np.empty(0, np.uint8)

    def add(self, piece: pa.Buffer | bytes) -> None:
        begin, self.size = self.size, self.size + len(piece)
        if self.size > len(self._bytes):
            grown = self._memory.of(max(self._pieces * len(piece) if not begin else 2 * self.size, self.size))
            grown[:begin] = self._bytes[:begin]
            self._bytes = grown
        if self.size > begin:
            self._bytes[begin : self.size] = np.frombuffer(piece, np.uint8)

    def whole(self) -> memoryview:
        """The payload, valid until the memory is reused."""
        return memoryview(self._bytes.data)[: self.size]


class ChunkedMessages(NamedTuple):
    """Chunked messages of the topic partition in *table*."""

    table: AnyPath
    entries: EntryReader
    spans_of: SpansOf

    def parts(self, units: Mapping[int, int]) -> dict[int, np.ndarray]:
        """Where the chunks of messages lie: positions in the order of chunk ids, by the message's last position.

        *units* gives each message's first position by its last. A message of which a chunk is gone has no positions.
        """
        wanted = Positions((first, last) for last, first in units.items())
        found = [
            read_chunks(self.table, run.part(spans[0][0], spans[-1][1]))
            for run, spans in self.spans_of(list(wanted))
            if run.may_have_chunks
        ]
        positions, chunk_ids, num_chunks = (
            np.concatenate([getattr(each, name) for each in found] or [np.zeros(0, np.int64)])
            for name in ("positions", "chunk_ids", "num_chunks")
        )
        keys = np.concatenate([each.keys[each.groups] for each in found] or [np.zeros(0, np.uint64)])
        in_order = np.argsort(keys, kind="stable")  # within a group the order of positions stays
        positions, chunk_ids, num_chunks = positions[in_order], chunk_ids[in_order], num_chunks[in_order]
        keys, places = keys[in_order], np.argsort(positions)
        made_of = {}
        for last, first in units.items():
            at = np.searchsorted(positions, last, sorter=places)
            row = places[at] if at < len(places) else -1
            if row < 0 or positions[row] != last:
                made_of[last] = np.zeros(0, np.int64)
                continue
            begin = np.searchsorted(keys, keys[row])
            begin += np.searchsorted(positions[begin : row + 1], first)
            here = slice(begin, row + 1)
            made_of[last] = positions[here][parts_of(chunk_ids[here], num_chunks[here])]
        return made_of

    def are_there(self, parts: np.ndarray) -> bool:
        """Is no chunk at these positions deleted? :class:`MessagesLost` if some are lost."""
        return sum(rows.num_rows for rows in self._read(parts, ())) == len(parts)

    def rows(self, parts: np.ndarray) -> pa.Table:
        """The rows of the chunks at these positions; :class:`MessagesLost` if some are lost."""
        return pa.concat_tables(self._read(parts, None))

    def joined(
        self, parts: np.ndarray, most_bytes: int | None = None, memory: PayloadMemory | None = None
    ) -> bytes | memoryview | None:
        """The payload of the chunks at these positions, in *memory* if given; None if some are deleted or rewritten.

        :class:`MessagesLost` if some are lost, :class:`UnreadableMessage` if their size is not the stated one or
        exceeds *most_bytes*.
        """
        payload = _Payload() if memory is None else _Placed(memory, len(parts))
        found, sizes, message = 0, set(), None
        for rows in self._read_ahead(parts, (_PAYLOAD, _SIZE, *_PLACE)):
            places = zip(*(rows[name].to_pylist() for name in _PLACE))
            for piece, size, place in zip(_buffers_of(rows[_PAYLOAD]), rows[_SIZE].to_pylist(), places):
                uuid, producer_name, *_ = place
                message = message or (uuid, producer_name, len(parts))
                if place != (*message, found):  # not the next chunk of this message
                    return None
                payload.add(piece)
                found += 1
                sizes.add(size)
                if wrong := wrong_size(payload.size, sizes, is_whole=found == len(parts)):
                    raise UnreadableMessage(wrong)
                if most_bytes is not None and payload.size > most_bytes:
                    raise UnreadableMessage(f"its chunks have more than {most_bytes} bytes together")
        return payload.whole() if found == len(parts) else None

    def _read_ahead(self, parts: np.ndarray, columns: Sequence[str]) -> Iterator[pa.Table]:
        """:meth:`_read`, of which a thread reads each next table meanwhile, unless there is only one."""
        blocks = self._read(parts, columns)
        rows = next(blocks, None)
        if rows is None or rows.num_rows == len(parts):
            yield from () if rows is None else (rows,)
            yield from blocks  # none, but an error if chunks are lost
            return
        with Threads(1) as pool:
            while rows is not None:
                following = pool.submit(next, blocks, None)
                yield rows
                rows = following.result()

    def _read(self, parts: np.ndarray, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        for run, spans in self.spans_of(ranges_of(parts)):
            yield from self.entries.rows_of(self.table, run, spans, columns)
