"""What a broker at rest asks of an object store in a second does not depend on how many topics there are."""

import pytest

from pulsar_spark.broker.bundle import topic_news
from pulsar_spark.broker.bundle.topic_news import A_SECOND_OF_A_STORE, TopicNews
from pulsar_spark.broker.service.liveness import STORE_LOOK_SECONDS, Liveness
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes import presence
from pulsar_spark.storage.processes.presence import Presence, present_clients
from pulsar_spark.storage.topics import producers
from pulsar_spark.storage.topics.discovery import CALLS, LIST_SECONDS, ListedTopics
from pulsar_spark.storage.topics.producers import TopicProducers
from pulsar_spark.storage.topics.topics import create_topic, prepare_root
from tests.support.object_store import new_root


@pytest.fixture
def layout(s3) -> Layout:
    found = Layout(new_root())
    prepare_root(found)
    return found


class State:
    """A topic whose log nobody writes to."""

    asked = 0

    def __init__(self, path):
        self.topic = type("Topic", (), {"path": path})

    @property
    def has_news(self) -> bool:
        State.asked += 1
        return False


@pytest.mark.parametrize("count", [3, 2000])
def test_logs_are_asked_in_turn_so_many_a_second(layout, monkeypatch, count):
    now = [0.0]
    monkeypatch.setattr(topic_news.time, "monotonic", lambda: now[0])
    topics = {f"t{number}": State(layout.root / "public" / "default" / f"t{number}") for number in range(count)}
    news = TopicNews(layout, topics)
    State.asked = 0
    before = layout.store.calls.total()
    for _ in range(100):
        now[0] += 0.1
        assert news.moved() == []
    assert 0 < State.asked <= 10 * A_SECOND_OF_A_STORE
    assert layout.store.calls.total() - before == 100, "one list of what was announced for each look"


def test_who_announced_is_asked_at_once(layout):
    path = create_topic(layout, "t").path
    news = TopicNews(layout, {"t": State(path)})
    news.add("t")
    news.moved()
    layout.store.touch(str(layout.bundle_folder() / "announced" / "public,default,t"))
    State.asked = 0
    news.moved()
    assert State.asked == 1


@pytest.mark.parametrize("count", [1, 20_000])
def test_topics_are_listed_the_less_often_the_more_there_are(layout, monkeypatch, count):
    now, lists = [0.0], []
    namespace = ("public", "default")
    monkeypatch.setattr(layout, "namespaces", lambda: [namespace])
    names = [f"t{number}" for number in range(count)]
    monkeypatch.setattr(layout.store, "folders", lambda folder: lists.append(now[0]) or names)
    folders = ListedTopics(layout, lambda: now[0])
    assert folders.changed() == [namespace]
    folders.seen()
    for _ in range(3000):
        now[0] += 1
        assert folders.changed() == []
    calls = len(lists) * (2 + count // 1000)
    assert 100 < calls <= 3000 / LIST_SECONDS * CALLS
    names.append("new")
    now[0] += 1000
    assert folders.changed() == [namespace]


def test_signs_of_life_of_all_clients_are_one_call(layout):
    now = [0.0]
    clients = [Presence(layout, f"client-{number}") for number in range(5)]
    liveness, connected = Liveness(layout, lambda: now[0]), [f"client-{number}" for number in range(5)]
    liveness.gone(connected)
    assert liveness.take_heard() == [], "the first look tells nothing"
    assert clients[3].touch()
    before = layout.store.calls.total()
    for _ in range(100):
        now[0] += STORE_LOOK_SECONDS / 100
        assert liveness.gone(connected) == []
    assert layout.store.calls.total() - before <= 2
    assert liveness.take_heard() == ["client-3"]
    clients[0].end()
    now[0] += STORE_LOOK_SECONDS
    assert liveness.gone(connected) == [], "a lease ends by itself"


def test_what_a_killed_client_left_goes_when_it_is_old(layout, monkeypatch):
    Presence(layout, "killed")
    liveness = Liveness(layout, lambda: 0.0)
    liveness.gone([])
    assert present_clients(layout) == ["killed"]
    monkeypatch.setattr(presence.time, "time", lambda now=presence.time.time(): now + presence.FOREIGN_SECONDS + 60)
    Liveness(layout, lambda: 0.0).gone([])
    assert present_clients(layout) == []


def test_a_producer_that_says_nothing_for_an_hour_is_there_no_more(layout, monkeypatch):
    path = create_topic(layout, "t").path
    TopicProducers(path, "killed", [-1]).enter()
    other = TopicProducers(path, "other", [-1])
    assert [each.name for each in other.others()] == ["killed"]
    monkeypatch.setattr(producers.time, "time", lambda now=producers.time.time(): now + producers.FOREIGN_SECONDS + 60)
    assert other.others() == []
    assert layout.store.names_after(path / "_producers", "") == []
