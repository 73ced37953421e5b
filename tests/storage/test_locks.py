"""What waits for a table's lock, and what does not."""

import multiprocessing
import os
import threading

import pytest
from deltalake import DeltaTable

from pulsar_spark.errors import BrokerFenced
from pulsar_spark.storage.delta import tables
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.table_lock import append_lock
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import create_topic, delete_topic, prepare_root
from pulsar_spark.table_specs import MESSAGES, REQUESTS

ROW = REQUESTS.rows([dict(request_id="r")])


def append_many(path: str, count: int, writer: int) -> None:
    table = AppendTable(path)
    for number in range(count):
        table.append(REQUESTS.rows([dict(request_id=f"{writer}-{number}")]))


def test_appends_of_many_processes_are_all_there_in_the_order_of_each(layout):
    path = str(layout.broker_table("requests"))
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=append_many, args=(path, 25, writer)) for writer in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    assert TableLog(path).latest() == 100
    found = [file.min_values["request_id"] for commit in TableLog(path).commits(0) for file in commit.added]
    for writer in range(4):
        assert [each for each in found if each.startswith(f"{writer}-")] == [
            f"{writer}-{number}" for number in range(25)
        ]


def test_an_append_does_not_wait_for_one_that_is_under_way(layout, monkeypatch):
    """One stops between its data file and its commit; the other goes by, and the first takes the next version."""
    path = layout.broker_table("requests")
    slow, quick = AppendTable(path), AppendTable(path)
    reached, go_on, write = threading.Event(), threading.Event(), tables.write_files

    def write_and_wait(*arguments):
        adds = write(*arguments)
        if threading.current_thread().name == "slow":
            reached.set()
            assert go_on.wait(60)
        return adds

    monkeypatch.setattr(tables, "write_files", write_and_wait)
    done = []
    thread = threading.Thread(target=lambda: done.append(slow.append(ROW)), name="slow")
    thread.start()
    assert reached.wait(60)
    assert [quick.append(ROW), quick.append(ROW)] == [1, 2]
    go_on.set()
    thread.join(60)
    assert done == [3]


@pytest.mark.local_disk
def test_who_holds_the_lock_alone_keeps_appends_away(layout):
    path, done = layout.broker_table("requests"), []
    with append_lock(path):
        thread = threading.Thread(target=lambda: done.append(AppendTable(path).append(ROW)))
        thread.start()
        thread.join(0.2)
        assert done == [] and TableLog(path).latest() == 0
    thread.join(60)
    assert done == [1]


@pytest.mark.parametrize("others", [0, 1, 3])
def test_of_two_that_append_once_at_the_same_time_one_does(tmp_path, monkeypatch, others):
    """The second finds the first's transaction among the commits that came since it looked."""
    create_table(tmp_path / "t", REQUESTS)
    first, second, rest = (AppendTable(tmp_path / "t") for _ in range(3))
    write = tables.write_files

    def overtaken(*arguments):
        adds = write(*arguments)
        monkeypatch.setattr(tables, "write_files", write)
        assert second.append_once(ROW, "app", 3) == 1
        for _ in range(others):
            rest.append(ROW)
        return adds

    monkeypatch.setattr(tables, "write_files", overtaken)
    assert first.append_once(ROW, "app", 3) is None
    assert dataset_of(tmp_path / "t").to_table().num_rows == 1 + others
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 1 + others, "the file of the one that did not is taken away"
    assert first.append_once(ROW, "app", 4) == 2 + others


def test_a_fenced_append_that_is_overtaken_leaves_no_file(tmp_path, monkeypatch):
    create_table(tmp_path / "t", REQUESTS)
    first, second = AppendTable(tmp_path / "t"), AppendTable(tmp_path / "t")
    write = tables.write_files

    def overtaken(*arguments, **how):
        adds = write(*arguments, **how)
        monkeypatch.setattr(tables, "write_files", write)
        second.append(ROW)
        return adds

    monkeypatch.setattr(tables, "write_files", overtaken)
    with pytest.raises(BrokerFenced, match="another broker"):
        first.append_fenced(ROW, 0)
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 1 == TableLog(tmp_path / "t").latest()


@pytest.mark.local_disk
@pytest.mark.parametrize("is_made_again", [False, True])
def test_an_append_to_a_topic_deleted_meanwhile_reaches_no_other(layout, monkeypatch, is_made_again):
    prepare_root(layout)
    topic = create_topic(layout, "t")
    table, write = AppendTable(topic.path), tables.write_files

    def deleted(*arguments):
        adds = write(*arguments)
        delete_topic(layout, "t")
        if is_made_again:
            create_topic(layout, "t")
        return adds

    monkeypatch.setattr(tables, "write_files", deleted)
    with pytest.raises(FileNotFoundError):
        table.append(MESSAGES.rows([dict(publish_id="0", entry_id=0)]))
    if is_made_again:
        assert TableLog(topic.path).latest() == 0 and not list(topic.path.glob("*.parquet"))


@pytest.mark.local_disk
def test_a_link_that_was_made_though_it_failed_is_a_commit(layout, monkeypatch):
    """A network file system may say that a link exists, or that it failed, of the very link it made."""
    path, link = layout.broker_table("requests"), os.link
    for version, error in enumerate([FileExistsError(17, "File exists"), OSError(5, "Input/output error")], 1):

        def link_and_fail(*arguments, error=error):
            link(*arguments)
            raise error

        monkeypatch.setattr(os, "link", link_and_fail)
        assert AppendTable(path).append(ROW) == version
    monkeypatch.undo()
    assert dataset_of(path).to_table().num_rows == 2


def test_a_table_is_created_once_and_whole(tmp_path):
    """Ten at once: one creates it, and what the others meet is whole."""
    made = []
    threads = [
        threading.Thread(target=lambda: made.append(create_table(tmp_path / "a/b/t", REQUESTS))) for _ in range(10)
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(made) == [False] * 9 + [True]
    assert DeltaTable(str(tmp_path / "a/b/t")).version() == 0
    assert not list((tmp_path / "a/b").glob(".new-*"))
