"""Who is on a topic, by files of processes that may be gone."""

import json
import os
import time
from unittest.mock import Mock

import pytest

from pulsar_spark.storage.processes.held_file import machine
from pulsar_spark.storage.topics import producers
from pulsar_spark.storage.topics.producers import FOREIGN_SECONDS, WAITING_SECONDS, TopicProducers, connected


def there(table, **said) -> tuple[list[str], os.PathLike]:
    """The names that another producer sees where a file says this, and the file."""
    path = table / "_producers" / "left"
    path.parent.mkdir()
    path.write_text(json.dumps({**machine(), "name": "n", "partitions": [-1], "is_waiting": False, **said}))
    return [each.name for each in TopicProducers(table, "other", [-1]).others()], path


def test_a_number_of_a_process_that_is_given_again_keeps_no_name(tmp_path):
    """The first process of a container has the same one each time."""
    assert there(tmp_path, pid=os.getpid(), process="before")[0] == []


def test_one_of_this_process_is_there(tmp_path):
    one = TopicProducers(tmp_path, "one", [-1])
    with one.alone():
        one.enter()
    assert [each.name for each in TopicProducers(tmp_path, "other", [-1]).others()] == ["one"]
    assert one.others() == []


@pytest.mark.parametrize("said", [{"host": "elsewhere"}, {"boot": "before"}])
def test_one_that_nobody_here_can_tell_anything_of_is_there_for_an_hour(tmp_path, said):
    names, path = there(tmp_path, pid=1, **said)
    assert names == ["n"]
    os.utime(path, (0, time.time() - FOREIGN_SECONDS - 1))
    assert TopicProducers(tmp_path, "other", [-1]).others() == []


def test_one_of_elsewhere_that_waits_is_there_for_a_minute(tmp_path):
    """Others wait for it, who would do so for an hour if its machine was switched off."""
    names, path = there(tmp_path, pid=1, host="elsewhere", is_waiting=True, waits_since=7)
    assert names == ["n"] and [each.waits_since for each in connected(tmp_path)] == [7]
    os.utime(path, (0, time.time() - WAITING_SECONDS - 1))
    assert TopicProducers(tmp_path, "other", [-1]).others() == []


def test_who_was_sent_away_does_not_come_back_with_partitions_that_are_added(tmp_path):
    fenced, other = (TopicProducers(tmp_path, name, [0]) for name in ("fenced", "other"))
    fenced.enter()
    other.send_away()
    other.enter()
    fenced.grow([0, 1])
    other.grow([0, 1])
    assert other.others() == [] and [each.partitions for each in fenced.others()] == [[0, 1]]


def test_who_may_only_look_into_a_store_is_told_who_is_there_all_the_same(tmp_path, monkeypatch):
    """What one that is long gone has left stays then."""
    _, path = there(tmp_path, pid=1, host="elsewhere")
    os.utime(path, (0, time.time() - FOREIGN_SECONDS - 1))
    monkeypatch.setattr(producers, "store_of", Mock(return_value=Mock(is_local=False, names=os.listdir)))
    monkeypatch.setattr(type(path), "unlink", Mock(side_effect=PermissionError("read only")))
    assert connected(tmp_path) == [] and path.exists()
