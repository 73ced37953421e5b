"""Writes to an object store of which nobody is told what became of them: what a commit names is not removed, and what
has taken place is not made again. And of who is gone without a word, which nobody is told either."""

import errno
import threading

import pytest

from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.sure_append import SureAppend
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.faults import UnclearWrite
from pulsar_spark.storage.topics.exclusive import LEASE_SECONDS, ExclusiveClaim
from pulsar_spark.storage.topics.topics import create_topic, prepare_root
from tests.support.object_store import asking, messages, new_layout, new_root, published, wait_shortly
from tests.support.s3_proxy import LOST_BEHIND, PASS, Answer, Asked, s3_proxy

REFUSED = Answer(is_passed=False, status=403, code="AccessDenied")


@pytest.fixture
def layout(in_store) -> Layout:
    return new_layout()


@pytest.fixture
def soon(monkeypatch):
    wait_shortly(monkeypatch)


def test_what_a_commit_names_stays_where_nobody_can_be_asked_whose_it_is(s3, soon):
    """The commit is put, its answer is lost, and the store then refuses to say what it has."""
    root = new_root()
    prepare_root(Layout(root))
    topic, bad = create_topic(Layout(root), "t"), []

    def answer(asked: Asked) -> Answer:
        if asked.method == "PUT" and asked.is_conditional and not bad:
            bad.append(asked.key)
            return LOST_BEHIND
        return REFUSED if bad and asked.method == "GET" and asked.key == bad[0] else PASS

    with s3_proxy(s3, answer) as url, asking(url):
        with pytest.raises(UnclearWrite):
            AppendTable(Layout(root).topic(topic.name)).append(messages("p"))
    assert bad and published(topic.path) == ["p"]


def test_what_a_commit_names_stays_where_the_next_try_is_refused(layout, monkeypatch):
    topic, calls, ask = create_topic(layout, "t"), [], layout.store._ask

    def lose(kind, key, call):
        if kind != "put" or not key.endswith(".json"):
            return ask(kind, key, call)
        calls.append(key)
        if len(calls) > 1:
            raise PermissionError(errno.EACCES, "refused", key)
        ask(kind, key, call)
        raise OSError(errno.EIO, "no answer", key)

    with monkeypatch.context() as patch:
        patch.setattr(layout.store, "_ask", lose)
        with pytest.raises(UnclearWrite):
            AppendTable(topic.path).append(messages("p"))
    assert published(topic.path) == ["p"]


def test_what_a_commit_names_stays_where_a_refusal_follows_a_lost_answer(s3, soon):
    """Whoever says it again: no try is made that nobody knows of."""
    root = new_root()
    prepare_root(Layout(root))
    topic, asked_for = create_topic(Layout(root), "t"), []

    def answer(asked: Asked) -> Answer:
        if asked.method != "PUT" or not asked.is_conditional:
            return PASS
        asked_for.append(asked.key)
        return LOST_BEHIND if len(asked_for) == 1 else REFUSED

    with s3_proxy(s3, answer) as url, asking(url):
        with pytest.raises(UnclearWrite):
            AppendTable(Layout(root).topic(topic.name)).append(messages("p"))
    assert len(asked_for) == 2 and published(topic.path) == ["p"]


def test_what_a_commit_names_stays_where_its_writer_is_interrupted(layout, monkeypatch):
    topic, put = create_topic(layout, "t"), layout.store.put_if_absent

    def interrupted(name, content: bytes) -> bool:
        put(name, content)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(layout.store, "put_if_absent", interrupted)
        with pytest.raises(KeyboardInterrupt):
            AppendTable(topic.path).append(messages("p"))
    assert published(topic.path) == ["p"]


def test_a_commit_that_comes_while_its_writer_waits_is_not_made_again(layout, monkeypatch):
    """It comes behind the search for it, and before the next try looks which version is next."""
    topic, late, put = create_topic(layout, "t"), [], layout.store.put_if_absent

    def unclear(name, content: bytes) -> bool:
        if late:
            return put(name, content)
        late.append((name, content))
        raise UnclearWrite(errno.EIO, "no answer")

    monkeypatch.setattr(layout.store, "put_if_absent", unclear)
    assert SureAppend(topic.path, "publish_id").append(messages("p"), lambda error: put(*late[0])) == 1
    assert published(topic.path) == ["p"]


def test_a_log_of_more_versions_than_a_list_has_names(layout):
    topic = create_topic(layout, "t")
    log, threads = TableLog(topic.path), []
    for number in range(4):
        names = [log.file(version) for version in range(1 + number, 2401, 4)]
        threads.append(threading.Thread(target=lambda names=names: [layout.store.put(name, b"{}") for name in names]))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert [log.latest(known) for known in (-1, 1, 700, 2400)] == [2400] * 4
    assert len(log.versions()) == 2401 and log.next_there(3) == 3
    assert layout.store.has_below(topic.path)


def test_a_killed_exclusive_producer_keeps_no_topic(layout):
    """Each that is refused is another one, and none of them waits."""
    topic, now = create_topic(layout, "t"), [0.0]

    def claim(name: str) -> ExclusiveClaim:
        found = ExclusiveClaim(topic.path, "t", name)
        found._file._clock = lambda: now[0]
        return found

    assert claim("killed").take()
    assert claim("next").holder() == "killed"
    now[0] += LEASE_SECONDS - 1
    assert claim("next").holder() == "killed" and not claim("next").take()
    now[0] += 2
    assert claim("next").holder() is None and claim("next").take()
