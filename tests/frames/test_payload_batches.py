"""A batch of rows as a Python worker gets it: some compressed, some damaged, some null, some as they are."""

import random

import pyarrow as pa

from pulsar_spark.frames.reading import payloads
from pulsar_spark.payloads.compression import compress
from pulsar_spark.payloads.encoding import PayloadDecoder


def rows(count: int):
    """Payload, compression and uncompressed size as they are stored, and the payload or the name of the error."""
    chance = random.Random(2)
    for _ in range(count):
        plain = chance.randbytes(chance.randrange(1, 80)) * chance.randrange(1, 5)
        zstd = compress(plain, "ZSTD")
        yield from (
            (zstd, "ZSTD", len(plain), plain),
            (compress(plain, "LZ4"), "LZ4", len(plain), plain),
            (zstd[:-1], "ZSTD", len(plain), "DecompressionError"),
            (zstd, "ZSTD", None, "DecompressionError"),
            (plain, None, None, None),
            (None, "ZSTD", 5, None),
            (None, None, None, None),
        )
    yield compress(bytes(100_000), "ZSTD"), "ZSTD", 100_000, bytes(100_000)


def test_each_row_is_read_by_itself_whatever_is_beside_it(monkeypatch):
    stored, names, sizes, expected = zip(*rows(200))
    nulls = [pa.nulls(len(stored), kind) for kind in (pa.list_(pa.string()), pa.string(), pa.binary())]
    batch = [pa.array(stored, pa.binary()), pa.array(names, pa.string()), pa.array(sizes, pa.int64()), *nulls]
    found = list(payloads.plain_rows(PayloadDecoder(None), batch))
    assert [plain if error is None else error.partition(":")[0] for plain, error in found] == list(expected)
    monkeypatch.setattr(payloads, "uncompress_at_once", lambda stored, sizes: [None] * len(stored))
    assert list(payloads.plain_rows(PayloadDecoder(None), batch)) == found
