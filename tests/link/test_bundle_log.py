"""Clients of a process hear of rounds together: who looks, who is told, and what is read how often."""

import errno
import threading
from unittest.mock import Mock

import pytest

import pulsar_spark as pulsar
from pulsar_spark.link import bundle_log as module
from pulsar_spark.link import inbox, round_reader
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.folder_events import FolderEvents
from pulsar_spark.storage.topics.topics import prepare_root
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.waiting import eventually, receive_of_any, receive_values


@pytest.fixture
def log(tmp_path):
    """One that no thread looks at."""
    (tmp_path / "_delta_log").mkdir()
    return module.BundleLog(tmp_path)


def _commit(folder, version: int) -> None:
    (folder / "_delta_log" / f"{version:020d}.json").write_text("")


class _Follower:
    def __init__(self):
        self.has_heard = threading.Event()

    def on_round(self, commit) -> None:
        self.has_heard.set()


@pytest.fixture
def events(tmp_path):
    try:
        found = FolderEvents(tmp_path)
    except OSError as missing:
        pytest.skip(f"nobody tells of files here: {missing}")
    yield found
    found.close()


def test_a_file_that_comes_into_the_folder_ends_the_wait(events, tmp_path):
    assert not events.wait(0.0)
    (tmp_path / "fresh").write_text("")
    (tmp_path / "fresh").rename(tmp_path / "there")
    assert events.wait(60.0) and not events.wait(0.0)
    (tmp_path / "other").hardlink_to(tmp_path / "there")
    assert events.wait(60.0)


def test_who_wakes_it_is_no_file(events):
    waited = []
    waiting = threading.Thread(target=lambda: waited.append(events.wait(60.0)))
    waiting.start()
    events.wake()
    waiting.join(60)
    assert waited == [False]


def test_of_a_folder_that_is_not_there_nobody_tells(tmp_path):
    with pytest.raises(OSError):
        FolderEvents(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "waits, look, seconds",
    [
        (False, 0.0, 0.05),
        (False, 1.0, 0.05),
        (True, 0.0, 0.01),
        (True, 0.001, 0.01),
        (True, 0.003, 0.027),
        (True, 1, 0.05),
    ],
)
def test_while_somebody_waits_it_looks_often_unless_a_look_takes_long(log, waits, look, seconds):
    """Many clients on few processors would otherwise do little else than look."""
    log.hurry("consumer", waits)
    assert log._pause(look) == pytest.approx(seconds)


def test_it_looks_seldom_once_it_was_told_of_three_rounds_until_it_is_not(log, tmp_path, monkeypatch):
    are_reported = iter([True, True, True, False])
    monkeypatch.setattr(log, "_wait_for_report", lambda seconds: seconds == 0.0 and next(are_reported))
    pauses = []
    for version in range(4):
        _commit(tmp_path, version)
        rounds = log._look()
        assert rounds and not log._look()
        log._notify(rounds, is_reported=False)
        pauses.append(log._pause(0.0))
    assert pauses == [0.05, 0.05, 1.0, 0.05]


def test_the_last_that_leaves_ends_it_and_the_next_begins_another(tmp_path):
    (tmp_path / "_delta_log").mkdir()
    _commit(tmp_path, 0)
    a, b, c, d = (_Follower() for _ in range(4))
    first = module.bundle_log(tmp_path, a)
    assert module.bundle_log(tmp_path, b) is first
    module.leave(first, a)
    _commit(tmp_path, 1)
    assert b.has_heard.wait(60) and not a.has_heard.is_set()
    module.leave(first, b)
    first._thread.join(60)
    assert not first._thread.is_alive()
    second = module.bundle_log(tmp_path, c)
    assert second is not first
    module.leave(first, b)
    assert module.bundle_log(tmp_path, d) is second
    for each in (c, d):
        module.leave(second, each)


def test_a_round_that_concerns_two_clients_is_read_once(only_in_files, tmp_path, monkeypatch):
    read, versions, others = inbox.read_added, [], set(module._logs.values())

    def counting(path, commit, *columns):
        if tmp_path in path.parents:
            versions.append(commit.version)
        return read(path, commit, *columns)

    with PlainBroker(tmp_path / "root"):
        clients = [pulsar.Client(f"delta:{tmp_path / 'root'}") for _ in range(2)]
        consumers = [
            client.subscribe("t", "s", pulsar.ConsumerType.Shared, receiver_queue_size=2) for client in clients
        ]
        monkeypatch.setattr(inbox, "read_added", counting)
        producer = clients[0].create_producer("t", batching_enabled=False)
        for number in range(8):
            producer.send_async(b"%d" % number, None)
        producer.flush()
        assert sorted(receive_of_any(consumers, 8)) == [str(number) for number in range(8)]
        assert versions and len(set(versions)) == len(versions)
        for client in clients:
            client.close()
        assert eventually(lambda: {*module._logs.values()} <= others)


def test_of_a_root_that_was_made_again_clients_hear_beside_those_of_the_old_one(tmp_path):
    """What is kept of the old one, its versions above all, says nothing of the new one."""
    root, clients = tmp_path / "root", []
    for life in range(2):
        prepare_root(Layout(tmp_path / f"new-{life}"))  # by somebody else: nobody here makes one while another is away
        (tmp_path / f"new-{life}").rename(root)
        with PlainBroker(root):
            clients.append(pulsar.Client(f"delta:{root}"))
            consumer = clients[-1].subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
            producer = clients[-1].create_producer("t")
            for number in range(3 - life):
                producer.send(b"%d" % number)
                assert receive_values(consumer, 1) == [str(number)]
        if life == 0:
            root.rename(tmp_path / "old")
    for client in clients:
        client.shutdown()


def test_a_log_that_could_not_be_read_at_first_is_followed_by_who_comes_next(tmp_path, monkeypatch):
    (tmp_path / "_delta_log").mkdir()
    _commit(tmp_path, 0)
    with monkeypatch.context() as away:
        away.setattr(module.TableLog, "latest", Mock(side_effect=OSError(errno.EIO, "the disk is away")))
        with pytest.raises(OSError, match="away"):
            module.bundle_log(tmp_path, _Follower())
    follower = _Follower()
    log = module.bundle_log(tmp_path, follower)
    _commit(tmp_path, 1)
    assert follower.has_heard.wait(60)
    module.leave(log, follower)
    assert not log._thread.is_alive()


class _Rounds:
    """Rounds of a bundle, of which a reader in this thread hears, in place of a log that a thread follows."""

    def __init__(self, monkeypatch, tmp_path, fails: Mock):
        (tmp_path / "_delta_log").mkdir()
        self.commits, self.dispatched, self.fails = {}, [], fails
        self.log = Mock(commits=lambda after: (self.commits[at] for at in sorted(self.commits) if at > after))
        self.log.latest = lambda: max(self.commits)
        monkeypatch.setattr(round_reader, "bundle_log", lambda path, follower: Mock(log=self.log))
        monkeypatch.setattr(round_reader, "TableLog", lambda path: Mock(latest=lambda: 0))
        inbox = Mock(concerns=lambda commit: commit.added, receive=self._receive)
        given = Mock(root=tmp_path, broker_table=lambda name: tmp_path), inbox, threading.Condition(), Mock()
        self.reader = round_reader.RoundReader(*given, lambda: 0.0, Mock())

    def _receive(self, commit, *_) -> None:
        self.fails(commit.version)
        self.dispatched.append(commit.version)

    def commit(self, version: int, *, is_ours: bool, is_reported: bool = True) -> None:
        self.commits[version] = Mock(version=version, added=is_ours)
        if is_reported:
            self.reader.on_round(self.commits[version])


def test_rounds_wait_for_a_client_without_those_of_others(monkeypatch, tmp_path):
    rounds = _Rounds(monkeypatch, tmp_path, Mock())
    assert rounds.reader.receive() and rounds.dispatched == []
    for version in range(1, 7):
        rounds.commit(version, is_ours=version % 2 == 0)
        assert rounds.reader.has_news == (version > 1)
    assert rounds.reader.receive() and rounds.dispatched == [2, 4, 6] and not rounds.reader.has_news


@pytest.mark.parametrize("most", [64, 2])
def test_a_round_that_is_not_reported_fails_or_is_one_too_many_comes_from_the_log(monkeypatch, tmp_path, most):
    monkeypatch.setattr(round_reader, "MOST_PENDING", most)
    rounds = _Rounds(monkeypatch, tmp_path, Mock(side_effect=[None, OSError(errno.EIO, "away"), *[None] * 9]))
    assert rounds.reader.receive()
    for version in range(1, 6):
        rounds.commit(version, is_ours=True, is_reported=version != 4)
    with pytest.raises(OSError):
        rounds.reader.receive()
    rounds.reader.has_news = True
    assert rounds.reader.receive() and rounds.dispatched == [1, 2, 3, 4, 5]
    rounds.commit(6, is_ours=True)
    assert rounds.reader.receive() and rounds.dispatched[-1] == 6
