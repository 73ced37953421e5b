"""Hashes of entries: those that were stored, and those that are computed from keys."""

import base64

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pulsar_spark.protocol.keys.sticky_key import NONE_KEY, sticky_key_hash
from pulsar_spark.storage.entries.key_hashes import read_hashes, unhashed_keys
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic, create_topic
from pulsar_spark.table_specs import DELIVERED, KEY_FLAGS, MESSAGES
from tests.conftest import START
from tests.storage.test_entries import published, run

NOBODY = sticky_key_hash(NONE_KEY)


@pytest.fixture
def topic(tmp_path) -> Topic:
    return create_topic(Layout(tmp_path / "root"), "t")


def rows(messages: list[dict], columns: list[str] | None = None) -> pa.Table:
    """Messages with these values, each an entry unless it says which; in a file with *columns* alone."""
    table = MESSAGES.rows(
        [
            dict(publish_id="p", entry_id=at, batch_size=1, partition=-1, payload=b"m", publish_time=START) | m
            for at, m in enumerate(messages)
        ]
    )
    return table if columns is None else table.select(columns)


def hashes(topic: Topic, messages: list[dict], batch_size: int = 1, columns: list[str] | None = None) -> list[int]:
    """What is read of a publish with these messages."""
    version, path = published(topic, rows(messages, columns))
    found = read_hashes(topic.path, [run(version, "p", 0, 0, len(messages) // batch_size, batch_size, path)])
    assert found.dtype == np.int32
    return found.tolist()


def hash_of(key: bytes) -> int:
    return mmh3.hash(key, 0, signed=False) & 0x7FFFFFFF


def test_what_is_stored_holds_whatever_the_key_is(topic):
    """Its sign bit is cleared where a foreign writer left it."""
    stored = [7, 2**31 - 1, 0, -1, -(2**31)]
    found = hashes(topic, [dict(partition_key="k", sticky_key_hash=hash) for hash in stored])
    assert found == [7, 2**31 - 1, 0, 2**31 - 1, 0]


@pytest.mark.parametrize("columns", [None, list(DELIVERED)], ids=["null", "no column"])
def test_without_it_the_keys_are_hashed(topic, columns):
    keys = [
        (dict(partition_key="k"), b"k"),
        (dict(partition_key=""), b""),
        (dict(partition_key="k", ordering_key=""), b""),
        (dict(partition_key="k", ordering_key="o"), b"o"),
        (dict(ordering_key="o"), b"o"),
        (dict(), NONE_KEY),
        (dict(partition_key="订单"), "订单".encode()),
        (dict(partition_key="x" * 1_000_000), b"x" * 1_000_000),
        (dict(partition_key="k"), b"k"),
    ]
    assert hashes(topic, [key for key, _ in keys], columns=columns) == [hash_of(key) for _, key in keys]


def test_keys_in_base64(topic):
    every_byte = bytes(range(256))
    coded = [every_byte, b"", b"k", b"k"]
    messages = [dict(partition_key=base64.b64encode(key).decode(), partition_key_b64_encoded=True) for key in coded]
    messages += [
        dict(partition_key="not base64!", partition_key_b64_encoded=True),
        dict(partition_key="aw==", partition_key_b64_encoded=False),
        dict(partition_key="aw=="),
        dict(partition_key="not base64!", partition_key_b64_encoded=True, ordering_key="o"),
        dict(partition_key_b64_encoded=True),
    ]
    plain = [NONE_KEY, b"aw==", b"aw==", b"o", NONE_KEY]
    coded += [every_byte, b"k", b""]
    messages[4:4] = [
        dict(partition_key="aw==", partition_key_b64_encoded=is_coded, ordering_key=text, ordering_key_b64_encoded=True)
        for is_coded, text in ((None, base64.b64encode(every_byte).decode()), (True, "aw"), (False, ""))
    ]
    messages += [
        dict(partition_key="k", ordering_key="not base64!", ordering_key_b64_encoded=True),
        dict(partition_key="k", ordering_key_b64_encoded=True),
        dict(partition_key="aw==", partition_key_b64_encoded=True, ordering_key="aw==", ordering_key_b64_encoded=False),
    ]
    plain += [NONE_KEY, b"k", b"aw=="]
    assert hashes(topic, messages) == [hash_of(key) for key in coded + plain]


def test_a_key_that_is_no_utf8_is_hashed_as_the_bytes_it_is(topic):
    keys = [b"\xff\x00\xfe", b"\x80", b"k"]
    for flag, expected in ((None, keys), (True, [NONE_KEY] * 3)):
        table = rows([dict(partition_key_b64_encoded=flag)] * 3)
        text = pa.Array.from_buffers(pa.string(), 3, pa.array(keys, pa.binary()).buffers())
        version, path = published(topic, rows([dict()]))
        at = table.schema.get_field_index("partition_key")
        pq.write_table(table.set_column(at, table.schema.field(at), text), topic.path / path)
        found = read_hashes(topic.path, [run(version, "p", 0, 0, 3, 1, path)])
        assert found.tolist() == [hash_of(key) for key in expected]


def test_stored_and_not_in_one_file(topic):
    messages = [dict(partition_key="a"), dict(partition_key="b", sticky_key_hash=5), dict(), dict(sticky_key_hash=6)]
    assert hashes(topic, messages) == [hash_of(b"a"), 5, NOBODY, 6]


def test_the_first_message_of_a_batch_speaks_for_it(topic):
    messages = [
        dict(entry_id=entry, batch_index=index, batch_size=2, partition_key=f"{entry}-{index}", sticky_key_hash=stored)
        for entry, index, stored in [(0, 1, None), (0, 0, None), (1, 0, 9), (1, 1, 8), (2, 0, None), (2, 1, 8)]
    ]
    assert hashes(topic, messages, batch_size=2) == [hash_of(b"0-0"), 9, hash_of(b"2-0")]


def keys_to_hash(topic: Topic, *publishes: list[dict], delete: str | None = None) -> list[str] | None:
    runs = []
    for messages in publishes:
        version, path = published(topic, rows(messages))
        runs.append(run(version, "p", 0, 0, len(messages), 1, path))
    if delete:
        DeltaTable(str(topic.path)).delete(delete)
    return unhashed_keys(topic.path, runs)


def test_which_columns_of_keys_are_to_be_hashed(topic):
    """None where every row has its hash; of a file that was rewritten since, its footer says nothing."""
    stored, half = dict(partition_key="k", sticky_key_hash=1), [dict(ordering_key="o", sticky_key_hash=1), dict()]
    coded = dict(ordering_key="aw==", ordering_key_b64_encoded=True)
    assert keys_to_hash(topic, [stored], [stored]) is None
    assert keys_to_hash(topic, [stored], [dict(partition_key="k"), dict()]) == ["partition_key"]
    assert keys_to_hash(topic, half, [dict(partition_key="k")]) == ["partition_key", "ordering_key"]
    assert keys_to_hash(topic, [dict()]) == []
    assert keys_to_hash(topic, [coded]) == ["ordering_key", "ordering_key_b64_encoded"]
    every = ["partition_key", "ordering_key", *KEY_FLAGS]
    assert keys_to_hash(topic, [stored, stored], delete="entry_id = 1") == every


@pytest.mark.parametrize("stored", [None, 3])
def test_what_is_deleted_has_no_key(topic, stored):
    messages = [dict(partition_key=str(number), sticky_key_hash=stored) for number in range(4)]
    version, path = published(topic, rows(messages))
    DeltaTable(str(topic.path)).delete("entry_id = 1 or entry_id = 3")
    found = read_hashes(topic.path, [run(version, "p", 0, 0, 4, 1, path)]).tolist()
    there = [hash_of(b"0"), hash_of(b"2")] if stored is None else [3, 3]
    assert found == [there[0], NOBODY, there[1], NOBODY]


def test_what_is_lost_has_no_key(topic):
    version, path = published(topic, rows([dict(partition_key="k", sticky_key_hash=1)] * 3))
    (topic.path / path).unlink()
    assert read_hashes(topic.path, [run(version, "p", 0, 0, 3, 1, path)]).tolist() == [NOBODY] * 3


def test_several_runs_follow_each_other_and_one_without_keys_is_not_read(topic):
    version, path = published(topic, rows([dict(partition_key=key) for key in "abcd"]))
    held = run(version, "p", 0, 100, 4, 1, path)
    keyless = run(version, "q", 0, 104, 2, 1, "gone.parquet")._replace(has_keys=False)
    found = read_hashes(topic.path, [held.part(102, 103), keyless, held.part(100, 100)]).tolist()
    assert found == [hash_of(b"c"), hash_of(b"d"), NOBODY, NOBODY, hash_of(b"a")]
    assert read_hashes(topic.path, []).tolist() == []
