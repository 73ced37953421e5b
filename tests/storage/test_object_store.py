"""Roots in an object store, on an S3 server in this process: one of those who put something wins, whatever becomes of
its answers; leases by one's own clock; and what is wrong with a store is said at once."""

import errno
import os
import tempfile
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from pulsar_spark.errors import ConnectError, InvalidConfiguration, InvalidUrl, NotARoot
from pulsar_spark.storage.delta.data_files import read_file
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.sure_append import SureAppend
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout, parse_service_url
from pulsar_spark.storage.processes import held_file
from pulsar_spark.storage.processes import lease as lease_module
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.store import store_calls
from pulsar_spark.storage.store.faults import UnclearWrite
from pulsar_spark.storage.store.object_path import ObjectPath
from pulsar_spark.storage.store.object_store import ObjectStore
from pulsar_spark.storage.store.store import path_of
from pulsar_spark.storage.store.store_lock import FREE, GONE_SECONDS, store_lock
from pulsar_spark.storage.topics.producers import TopicProducers
from pulsar_spark.storage.topics.topics import create_topic, list_topics, prepare_root, read_topic
from pulsar_spark.table_specs import MESSAGES
from tests.support.object_store import (
    BUCKET,
    CREDENTIALS,
    asking,
    messages,
    new_layout,
    new_root,
    published,
    wait_shortly,
)
from tests.support.s3_proxy import LOST_BEFORE, LOST_BEHIND, PASS, SLOW_DOWN, Answer, Asked, s3_proxy


@pytest.fixture
def layout(in_store) -> Layout:
    return new_layout()


@pytest.fixture
def soon(monkeypatch):
    wait_shortly(monkeypatch)


def test_of_those_who_put_at_a_time_one_wins(layout):
    path, start = layout.root / "x", threading.Barrier(4)

    def put(content: bytes) -> bool:
        start.wait()
        return path.store.put_if_absent(path, content)

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(put, [b"a", b"b", b"c", b"d"]))
    assert sorted(won) == [False, False, False, True]
    assert path.read_bytes() == [b"a", b"b", b"c", b"d"][won.index(True)]


def test_another_kind_of_store_is_understood():
    """One that gives other signs of what is there than S3 does, in the memory of this process."""
    store = ObjectStore(f"s3://{BUCKET}")
    store._raw = store._once = MemoryStore()
    path = ObjectPath(store, "root/x")
    assert [store.put_if_absent(path, content) for content in (b"a", b"b")] == [True, False]
    content, known = store.get_stamped(path)
    assert content == b"a" and store.put_over(path, b"c", known)
    assert not store.put_over(path, b"d", known), "it is another by now"
    assert not store.put_over(path, b"e", None) and path.read_bytes() == b"c"
    with store_lock(ObjectPath(store, "root/lock")) as renew:
        renew()
    assert store.names_after(ObjectPath(store, "root"), "") == ["lock", "x"]
    store.remove([path])
    assert not store.put_over(path, b"f", known) and not path.exists()


def test_writers_of_one_table_lose_no_append_and_make_none_twice(layout):
    topic = create_topic(layout, "t")

    def append(writer: int) -> None:
        table = AppendTable(topic.path)
        for number in range(5):
            table.append(messages(f"{writer}-{number}"))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(append, range(3)))
    assert sorted(published(topic.path)) == sorted(f"{writer}-{number}" for writer in range(3) for number in range(5))
    assert sorted(TableLog(topic.path).versions()) == list(range(16))


def test_topics_are_found_by_name(layout):
    names = ["persistent://public/default/a", "persistent://tenant/Space/B_c"]
    for name in names:
        create_topic(layout, name, 2)
    assert layout.namespaces() == [("public", "default"), ("tenant", "Space")]
    assert [str(topic.name) for topic in list_topics(layout, "tenant", "Space")] == names[1:]
    assert read_topic(layout, names[0]).partitions == 2


def test_large_files_are_read_in_parts(layout, monkeypatch):
    """And only those that are wanted."""
    path = create_topic(layout, "t").path
    AppendTable(path).append(
        MESSAGES.rows(
            [
                dict(publish_id="p", entry_id=number, batch_size=1, partition=-1, publish_time=0, payload=payload)
                for number, payload in enumerate(os.urandom(1000) for _ in range(100))
            ]
        )
    )
    [file] = next(TableLog(path).commits(0)).added
    expected = read_file(path, file, MESSAGES.schema)
    monkeypatch.setattr(store_calls, "WHOLE_BYTES", 1000)
    assert read_file(path, file, MESSAGES.schema).equals(expected)
    with pq.ParquetFile(layout.store.parquet(path / file.path)) as found:
        assert found.read(columns=["entry_id"]).num_rows == 100


@pytest.mark.default
@pytest.mark.parametrize("bad", [SLOW_DOWN, LOST_BEFORE, LOST_BEHIND], ids=["503", "lost before", "lost behind"])
def test_answers_that_do_not_come_neither_lose_nor_double_a_commit(s3, soon, bad):
    """Every second put is answered badly the first time."""
    told, seen = [], set()

    def answer(asked: Asked) -> Answer:
        if asked.method != "PUT" or asked.key in seen:
            return PASS
        seen.add(asked.key)
        if len(seen) % 2:
            return PASS
        told.append(asked.key)
        return bad

    root = new_root()
    prepare_root(Layout(root))
    topic = create_topic(Layout(root), "t")
    with s3_proxy(s3, answer) as url, asking(url):
        table = SureAppend(Layout(root).topic(topic.name), "publish_id")
        for number in range(10):
            assert table.append(messages(f"p-{number}"), pytest.fail) == number + 1
    assert published(topic.path) == [f"p-{number}" for number in range(10)]
    assert len(told) >= 10


def test_a_commit_that_comes_behind_its_search_is_not_made_again(layout, monkeypatch):
    """The store takes the first try's commit when the second try is about to be made."""
    topic, late, waited = create_topic(layout, "t"), [], []
    put = layout.store.put_if_absent

    def put_late(name, content: bytes) -> bool:
        if not late:
            late.append((name, content))
            raise UnclearWrite(errno.EIO, "no answer")
        if len(late) == 1:
            late.append(put(*late[0]))
        return put(name, content)

    monkeypatch.setattr(layout.store, "put_if_absent", put_late)
    assert SureAppend(topic.path, "publish_id").append(messages("p"), waited.append) == 1
    assert len(waited) == 1 and late[1]
    assert published(topic.path) == ["p"]


def test_a_lease_is_held_until_it_was_the_same_for_long_enough(layout):
    now = {"first": 0.0, "second": 1000.0}
    first, second = (BundleLease(layout, name) for name in now)
    for lease in (first, second):
        lease._file._clock = lambda name=lease.broker_id: now[name]
    assert first.take() and not second.take()
    assert second.holder().broker_id == "first"
    now["second"] += lease_module.LEASE_SECONDS - 1
    assert not second.take()
    assert first.take(), "renewed"
    now["second"] += lease_module.LEASE_SECONDS - 1
    assert not second.take(), "it was another one a while ago"
    now["second"] += lease_module.LEASE_SECONDS
    assert second.take()
    assert not first.take(), "one that was stopped meanwhile finds it taken"
    second.release()
    assert first.take(), "at once"


def test_of_two_brokers_that_take_a_lease_at_a_time_one_has_it(layout):
    leases, start = [BundleLease(layout, f"b-{number}") for number in range(4)], threading.Barrier(4)

    def take(lease: BundleLease) -> bool:
        start.wait()
        return lease.take()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(take, leases)) == [False, False, False, True]


def test_a_lock_is_one_holders_until_he_is_gone(layout):
    path, inside, now = layout.root / "lock", [], [0.0]
    with store_lock(path):
        first = path.read_bytes()

        def pause(_: float) -> None:
            inside.append(path.read_bytes())
            now[0] += GONE_SECONDS / 3

        with store_lock(path, clock=lambda: now[0], pause=pause):
            assert path.read_bytes() != first
            assert inside == [first] * 3
    assert path.read_bytes().startswith(FREE)
    with store_lock(path, pause=pytest.fail):
        pass


def test_who_lets_go_late_leaves_the_lock_to_who_has_it_now(layout, monkeypatch):
    """It was held up between looking at the lock and letting go, for so long that another took it."""
    path, held, looked = layout.root / "lock", {}, layout.store.get_stamped

    def look_late(name):
        found = looked(name)
        if "first" in held and "second" not in held:
            held["second"] = path.store.put_over(path, b"second", found[1])
        return found

    with store_lock(path):
        held["first"] = True
        monkeypatch.setattr(layout.store, "get_stamped", look_late)
    assert held["second"] and path.read_bytes() == b"second"


def say_nothing_of(error: BaseException) -> None:
    said = "".join(traceback.format_exception(error)) + repr(error)
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in said


@pytest.mark.parametrize(
    "answered, error, said",
    [
        (Answer(False, 404, "NoSuchBucket"), NotARoot, "bucket .* does not exist"),
        (Answer(False, 403, "AccessDenied"), ConnectError, "the store refuses"),
        (Answer(False, 403, "InvalidAccessKeyId"), ConnectError, "set AWS_ACCESS_KEY_ID"),
        (Answer(False, 403, "SignatureDoesNotMatch"), ConnectError, "set AWS_ACCESS_KEY_ID"),
        (Answer(False, 301, "PermanentRedirect"), ConnectError, "set AWS_REGION"),
        (Answer(False, 400, "AuthorizationHeaderMalformed"), ConnectError, "set AWS_REGION"),
        (SLOW_DOWN, ConnectError, "does not answer"),
    ],
    ids=lambda each: each.code if isinstance(each, Answer) else "",
)
def test_what_is_wrong_with_a_store_is_said_at_once(s3, answered, error, said):
    with s3_proxy(s3, lambda asked: answered) as url, asking(url), pytest.raises(error, match=said) as refused:
        prepare_root(Layout(new_root()))
    say_nothing_of(refused.value)


def test_who_may_only_read_makes_no_root(s3):
    refused = Answer(False, 403, "AccessDenied")
    with s3_proxy(s3, lambda asked: refused if asked.method == "PUT" else PASS) as url, asking(url):
        with pytest.raises(ConnectError, match="read, write and remove"):
            prepare_root(Layout(new_root()))


def test_a_store_that_knows_no_conditional_puts_takes_no_root(s3):
    with s3_proxy(s3, lambda asked: Answer(without=("If-None-Match", "if-none-match"))) as url, asking(url):
        with pytest.raises(NotARoot, match="ignores conditional puts"):
            prepare_root(Layout(new_root()))


def test_a_store_that_is_not_there():
    with asking("http://127.0.0.1:1"), pytest.raises(ConnectError, match="AWS_ENDPOINT_URL") as refused:
        prepare_root(Layout(new_root()))
    say_nothing_of(refused.value)


def test_no_credentials(s3, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(ConnectError, match="there are no credentials"):
        prepare_root(Layout(new_root()))


@pytest.mark.parametrize("root", ["s3://", "s3://b", "s3://bucket", "s3://bucket/", "s3://Bucket/x", "s3://bucket/a b"])
def test_what_names_no_place_in_a_bucket(root):
    with pytest.raises(InvalidUrl, match="root 's3:"):
        Layout(root)


@pytest.mark.parametrize("root", ["s3://key:se/cret@bucket/x", "s3a://key:se/cret@bucket/x", "https://key:se/cret@h"])
def test_a_url_with_a_password_is_refused_without_it(root):
    for url in (root, f"delta:{root}"):
        with pytest.raises(InvalidUrl) as refused:
            parse_service_url(url) if url != root else Layout(url)
        assert "cret" not in str(refused.value)


def test_the_password_of_an_endpoint_is_not_shown():
    with asking("http://somebody:secret@127.0.0.1:9"), pytest.raises(ConnectError, match="does not answer") as refused:
        prepare_root(Layout(new_root()))
    assert "secret" not in "".join(traceback.format_exception(refused.value))


def test_nothing_of_the_credentials_is_shown(layout):
    store = layout.store
    shown = f"{store!r} {layout.root!r} {layout.root} {store.__reduce__()} {vars(store)}"
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in shown
    assert path_of(str(layout.root)) == layout.root


def test_a_producer_says_now_and_then_that_it_is_there(layout, monkeypatch):
    """Whoever looks tells by its age alone, where it is another machine's."""
    topic = create_topic(layout, "t")
    mine, other = (TopicProducers(topic.path, name, [-1]) for name in "ab")
    mine.enter()
    (path,) = other._files()
    before = layout.store.stamp(path)
    monkeypatch.setattr(held_file, "machine", lambda: {"host": "another", "boot": "another"})
    assert [each.name for each in other.others()] == ["a"]
    mine.renew()
    assert layout.store.stamp(path) != before and [each.name for each in other.others()] == ["a"]
    mine.leave()
    mine.renew()
    assert other.others() == []


def test_a_brokers_folder_on_its_machine_is_nobody_elses(layout, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder = layout.local_folder()
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o077 == 0
    folder.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    with pytest.raises(InvalidConfiguration, match="set TMPDIR"):
        layout.local_folder()
    folder.unlink()
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(InvalidConfiguration, match="set TMPDIR"):
        layout.local_folder()
