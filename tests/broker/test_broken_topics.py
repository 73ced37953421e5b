"""A topic whose log or files are broken ends itself: the others are served, its subscriptions are kept, and it goes on
when it is mended."""

import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.protocol.policies.policies import TOPIC_STOPPED
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import read_topic
from tests.broker.fuzzing import CONTENTS, STATISTICS, Damage
from tests.broker.hostile import ILL, SICK, HostileRoot, commit_file


def stopped(hostile: HostileRoot) -> str | None:
    """What the latest rounds say stops the sick topic."""
    return read_latest(hostile.layout).policies.get((SICK, TOPIC_STOPPED))


def lines_of(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if SICK in record.getMessage()]


@pytest.mark.parametrize(
    "content",
    [content for content in CONTENTS if content and b"txn" not in content],
    ids=lambda content: repr(content[:30]),
)
def test_a_commit_of_a_topic_that_is_none_ends_the_topic_only(hostile, content, caplog):
    hostile.engine.publish(SICK, -1, [1])
    topic = read_topic(hostile.layout, SICK).path
    Damage("replaced", content=content).to(commit_file(topic, TableLog(topic).latest()))
    hostile.serve()
    hostile.holds()
    assert hostile.engine.subscriptions(SICK) == ["ill"]
    assert hostile.ask(ILL.ack(0, receipt=True)) == [(None, None)], "what was numbered before can be acknowledged"


@pytest.mark.parametrize(
    "statistics", [each for each in STATISTICS if each not in (None, [])], ids=lambda each: repr(each)[:30]
)
def test_statistics_that_are_none_end_the_topic_only(hostile, statistics, caplog):
    hostile.engine.publish(SICK, -1, [1])
    topic = read_topic(hostile.layout, SICK).path
    Damage("statistics", statistics=statistics).to(commit_file(topic, TableLog(topic).latest()))
    hostile.serve()
    assert len(lines_of(caplog)) == 1, "it is said, once"
    hostile.holds()
    assert hostile.engine.subscriptions(SICK) == ["ill"]


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: repr(content[:30]))
def test_a_foreign_log_beside_the_topics_is_passed_over(hostile, content):
    log = hostile.layout.root / "public" / "default" / "foreign" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_bytes(content)
    hostile.serve()
    hostile.holds()
    assert hostile.aside == {}


@pytest.mark.parametrize("restarts", [False, True], ids=["while it serves", "before a start"])
def test_a_topic_whose_definition_is_broken_keeps_its_subscriptions(hostile, restarts):
    """Were it taken for deleted, its subscriptions would go with it, and mending the file would bring none back."""
    first = commit_file(read_topic(hostile.layout, SICK).path, 0)
    whole = first.read_bytes()
    first.unlink()
    first.write_bytes(b"{")
    (first.parents[2] / "touched").mkdir()
    if restarts:
        hostile.restart()
    hostile.serve()
    hostile.holds()
    assert [key.subscription for key in hostile.rounds.bundle.cursors].count("ill") == 1
    first.write_bytes(whole)
    hostile.restart()
    hostile.holds()
    assert hostile.ask(ILL.ack(0, receipt=True)) == [(None, None)]
    hostile.engine.tables[SICK] = AppendTable(read_topic(hostile.layout, SICK).path)
    assert hostile.engine.publish(SICK, -1, [1]) == [4]
    hostile.serve()
    assert sorted(hostile.engine.state(SICK, -1, "ill")["pending"]) == [1, 2, 3, 4]


@pytest.mark.parametrize("restarts", [False, True], ids=["while it serves", "before a start"])
@pytest.mark.parametrize("rewritten", [False, True], ids=["as it was", "written again"])
def test_a_topic_whose_definition_cannot_be_read_for_a_moment_is_served_again(hostile, restarts, rewritten, caplog):
    """Without a word from anybody, a publish or a restart."""
    first = commit_file(read_topic(hostile.layout, SICK).path, 0)
    whole, aside = first.read_bytes(), first.with_name("aside")
    first.rename(aside)
    first.write_bytes(b"{")
    (first.parents[2] / "touched").mkdir()
    if restarts:
        hostile.restart()
    hostile.serve()
    hostile.holds()
    [(error, text)] = hostile.ask(ILL.subscribe("d"))
    assert error == "TopicStopped" and "its first commit cannot be read" in text and stopped(hostile) == text
    if rewritten:
        first.write_bytes(whole)
    else:
        aside.rename(first)
    hostile.rounds.bundle._read_again_at = 0.0
    assert hostile.rounds.bundle.has_news(), "nobody has to ask"
    hostile.serve()
    assert stopped(hostile) is None and not hostile.rounds.bundle._unreadable
    assert "error" not in Admin(f"delta:{hostile.layout.root}").stats(SICK)
    assert hostile.ask(ILL.ack(0, receipt=True)) == [(None, None)]
    hostile.engine.tables[SICK] = AppendTable(read_topic(hostile.layout, SICK).path)
    assert hostile.engine.publish(SICK, -1, [1]) == [4]
    hostile.serve()
    assert sorted(hostile.engine.state(SICK, -1, "ill")["pending"]) == [1, 2, 3, 4]
