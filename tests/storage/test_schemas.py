"""The table of schemas: versions, removals, and many who bring schemas at once."""

import threading

import pytest

from pulsar_spark.errors import IncompatibleSchema
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo, SchemaType
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.topics import schemas
from pulsar_spark.storage.topics.schemas import SchemaTable
from pulsar_spark.storage.topics.topics import create_topic, delete_topic


def avro(number: int) -> SchemaInfo:
    return SchemaInfo(SchemaType.AVRO, "AVRO", f'{{"type": "enum", "name": "E{number}", "symbols": ["A"]}}')


def takes(kept: list[SchemaInfo]) -> None:
    """A check that refuses nothing."""


def test_versions_count_up_and_a_schema_has_one(layout):
    topic, other, table = create_topic(layout, "t"), create_topic(layout, "u", 2), SchemaTable(layout)
    assert table.versions(topic.topic_id) == [] and not table.path.exists(), "nothing is made before the first"
    assert [table.keep(topic, avro(number), takes) for number in (1, 2, 1, 3)] == [0, 1, 0, 2]
    assert table.keep(other, avro(3), takes, {"owner": "me"}) == 0
    assert [each.info for each in SchemaTable(layout).kept(topic.topic_id)] == [avro(1), avro(2), avro(3)]
    assert SchemaTable(layout).versions(other.topic_id)[0].properties == {"owner": "me"}
    written = TableLog(table.path).latest()
    table.keep(topic, avro(2), takes)
    assert TableLog(table.path).latest() == written, "what is there is not written again"


def test_what_the_check_refuses_is_not_written(layout):
    topic, table = create_topic(layout, "t"), SchemaTable(layout)
    table.keep(topic, avro(1), takes)

    def refuses(kept: list[SchemaInfo]) -> None:
        assert kept == [avro(1)]
        raise IncompatibleSchema("no")

    with pytest.raises(IncompatibleSchema):
        table.keep(topic, avro(2), refuses)
    assert len(table.versions(topic.topic_id)) == 1


def test_after_a_removal_others_fit_and_messages_find_theirs(layout):
    topic, table = create_topic(layout, "t"), SchemaTable(layout)
    assert table.remove(topic) is None
    table.keep(topic, avro(1), takes)
    assert (table.remove(topic), table.remove(topic)) == (1, None)
    assert table.kept(topic.topic_id) == []
    asked = []
    assert table.keep(topic, avro(1), asked.append) == 2 and asked == [[]]
    assert [(each.info, each.is_removed) for each in table.versions(topic.topic_id)][::2] == [(avro(1), False)] * 2


def test_a_topic_made_again_keeps_none(layout):
    topic, table = create_topic(layout, "t"), SchemaTable(layout)
    table.keep(topic, avro(1), takes)
    delete_topic(layout, "t")
    assert table.kept(create_topic(layout, "t").topic_id) == []


def test_many_at_once_get_one_version_each_schema_and_are_judged_one_after_the_other(layout):
    topic = create_topic(layout, "t")
    versions, judged, begin = [], [], threading.Barrier(8)

    def bring(number: int) -> None:
        begin.wait()
        versions.append((number, SchemaTable(layout).keep(topic, avro(number), lambda kept: judged.append(len(kept)))))

    threads = [threading.Thread(target=bring, args=(number % 4,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(versions) == 8 and len(set(versions)) == 4 and {version for _, version in versions} == {0, 1, 2, 3}
    assert {0, 1, 2, 3} <= set(judged), "the last was held against all others"
    kept = SchemaTable(layout).kept(topic.topic_id)
    assert {(int(each.info.schema()[27]), each.version) for each in kept} == set(versions)


def test_who_comes_second_is_judged_again(layout, monkeypatch):
    """Between the judgement and the commit somebody else brings another schema."""
    topic, table, other = create_topic(layout, "t"), SchemaTable(layout), SchemaTable(layout)
    table.keep(topic, avro(0), takes)
    judged = []

    def check(kept: list[SchemaInfo]) -> None:
        judged.append(len(kept))
        if len(kept) == 1:
            other.keep(topic, avro(1), takes)
        else:
            raise IncompatibleSchema("not beside that one")

    with pytest.raises(IncompatibleSchema):
        table.keep(topic, avro(2), check)
    assert judged == [1, 2] and [each.info for each in table.kept(topic.topic_id)] == [avro(0), avro(1)]


def test_a_crash_before_the_commit_leaves_nothing(layout, monkeypatch):
    topic, table = create_topic(layout, "t"), SchemaTable(layout)
    table.keep(topic, avro(0), takes)

    def dies(*_) -> None:
        raise OSError("the power goes")

    with monkeypatch.context() as broken:
        broken.setattr(schemas.AppendTable, "append_fenced", dies)
        with pytest.raises(OSError):
            table.keep(topic, avro(1), takes)
    assert [each.info for each in SchemaTable(layout).kept(topic.topic_id)] == [avro(0)]
    assert table.keep(topic, avro(1), takes) == 1
