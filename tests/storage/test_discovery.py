"""Folders of topics are looked into when they have changed, and while they may have changed unseen now and then."""

import os
import time

import pytest

from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics import discovery
from pulsar_spark.storage.topics.discovery import TopicFolders
from pulsar_spark.storage.topics.topics import create_topic

NAMESPACE = "public", "default"


class Clock:
    """The time that goes by, as a test says."""

    def __init__(self):
        self.seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def time_ns(self) -> int:
        return time.time_ns()


@pytest.fixture
def clock(monkeypatch) -> Clock:
    monkeypatch.setattr(discovery, "time", clock := Clock())
    return clock


@pytest.fixture
def layout(tmp_path) -> Layout:
    create_topic(layout := Layout(tmp_path / "root"), "t")
    return layout


def changed_before(layout: Layout, seconds: int) -> None:
    """As if the last topic had come so long ago."""
    then = time.time_ns() - seconds * 1_000_000_000
    os.utime(layout.namespace(*NAMESPACE), ns=(then, then))


def test_a_folder_that_changed_just_now_counts_as_changed_again_at_a_pace(layout, clock):
    folders = TopicFolders(layout)
    assert folders.changed() == [NAMESPACE]
    clock.seconds += 0.5
    folders.seen()
    assert folders.changed() == []
    clock.seconds += 4.9
    assert folders.changed() == []
    clock.seconds += 0.1
    assert folders.changed() == [NAMESPACE]
    clock.seconds += 0.5
    folders.seen()
    assert folders.changed() == []
    folders.ask_again()
    assert folders.changed() == [NAMESPACE]


def test_a_change_that_shows_counts_at_once(layout, clock):
    folders = TopicFolders(layout)
    folders.changed()
    clock.seconds += 1000
    folders.seen()
    changed_before(layout, 0)
    assert folders.changed() == [NAMESPACE]


def test_a_folder_that_changed_long_ago_is_looked_into_once_more_and_then_no_more(layout, clock):
    folders = TopicFolders(layout)
    folders.changed()
    folders.seen()
    changed_before(layout, 5)
    assert folders.changed() == [NAMESPACE]
    folders.seen()
    clock.seconds += 10**6
    folders.ask_again()
    assert folders.changed() == []


def test_who_looks_into_one_folder_has_not_looked_into_another(layout, clock):
    """What changed between the two looks of one, unseen by its stamp, is found though the other goes on changing."""
    create_topic(layout, "persistent://public/other/t")
    folders, other = TopicFolders(layout), ("public", "other")
    assert folders.changed() == [NAMESPACE, other]
    clock.seconds += 1
    folders.seen()
    for _ in range(9):
        clock.seconds += 1
        os.utime(layout.namespace(*NAMESPACE))
        assert folders.changed() == [NAMESPACE]
        folders.seen()
    clock.seconds += 1
    assert other in folders.changed()


def test_a_namespace_made_while_namespaces_are_listed_is_found_however_long_that_takes(tmp_path, monkeypatch):
    layout, late = Layout(tmp_path / "root"), [0]
    create_topic(layout, "t")
    folders, find, clock = TopicFolders(layout), layout.namespaces, time.time_ns

    def find_slowly() -> list[tuple[str, str]]:
        found = find()
        if not late[0]:
            create_topic(layout, "public/other/t")
        late[0] += 5_000_000_000
        return found

    monkeypatch.setattr(layout, "namespaces", find_slowly)
    monkeypatch.setattr("pulsar_spark.storage.topics.discovery.time.time_ns", lambda: clock() + late[0])
    assert folders.changed() == [("public", "default")]
    folders.seen()
    assert ("public", "other") in folders.changed()
