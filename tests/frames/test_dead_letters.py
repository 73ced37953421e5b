"""Dead letters looked into and sent back, over hand-made dead letter topics: which, where to, how often, and what a
crash anywhere leaves."""

from datetime import timedelta

import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F

from pulsar_spark.broker.committing.round_rows import rows_of_round
from pulsar_spark.errors import InvalidConfiguration, InvalidMessage, InvalidTopicName, Timeout, TopicNotFound
from pulsar_spark.frames.letters import reprocess_run
from pulsar_spark.frames.letters.dead_letters import count_by_cause, dead_letters, sent_letters
from pulsar_spark.frames.letters.reprocess import reprocess_dead_letters
from pulsar_spark.frames.letters.reprocess_chunk import SENT_COLUMNS
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS, PAYLOAD_ERROR
from pulsar_spark.storage.cursor_ledger.reprocessing import Reprocessing
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from pulsar_spark.table_specs import MESSAGES
from tests.support.letters import EVENT, LETTERS, RECONSUMED, REDELIVERED, SUBSCRIPTION, TOPIC, WRITTEN, write_letters


@pytest.fixture
def write(layout):
    """Write *count* letters from number *first* on in one commit."""

    def write(count, *, first=0, **more):
        write_letters(layout, range(first, first + count), **more)

    return write


@pytest.fixture
def again(spark, root):
    """Run a job on the letters, job "j" to their origin unless named."""

    def run(topic=LETTERS, job_id="j", to="origin", **options):
        return reprocess_dead_letters(spark, root, topic, job_id=job_id, to=to, **options)

    return run


def sent(spark, layout, topic=TOPIC):
    """Payload, partition and replay count of each message of *topic*."""
    rows = spark.read.format("delta").load(str(read_topic(layout, topic).path))
    return rows.selectExpr("cast(payload as string) payload", "partition", "properties['DEAD_LETTER_REPLAYS'] replays")


def assert_sent(spark, layout, *numbers, topic=TOPIC, partitions=2, replays="1"):
    found = sent(spark, layout, topic)
    expected = [(str(number), number % 2 if partitions else -1, replays) for number in numbers]
    assert_df_equality(
        found, spark.createDataFrame(expected, found.schema), ignore_row_order=True, ignore_nullable=True
    )


def test_a_letter_says_what_it_is_and_who_sent_it_back(spark, root, write, again):
    write(2)
    write(1, first=2)
    again(limit=1)
    letters = (
        dead_letters(spark, root, "orders", subscription=SUBSCRIPTION)
        .drop("properties", *ENCODING_COLUMNS, PAYLOAD_ERROR)
        .withColumn("payload", F.col("payload").cast("string"))
    )
    expected = spark.createDataFrame(
        [
            (
                f"({ledger},{entry},-1,-1)",
                -1,
                number,
                TOPIC,
                f"(7,{number},{number % 2},-1)",
                SUBSCRIPTION,
                (REDELIVERED, RECONSUMED)[number % 2],
                number,
                0,
                WRITTEN + timedelta(minutes=number),
                EVENT,
                f"k{number % 3}",
                "o",
                None,
                None,
                str(number),
                "j" if number == 0 else None,
            )
            for number, (ledger, entry) in enumerate([(1, 0), (1, 1), (2, 0)])
        ],
        letters.schema,
    )
    assert_df_equality(letters, expected, ignore_row_order=True, ignore_nullable=True)
    counts = count_by_cause(spark, root, LETTERS)
    assert_df_equality(
        counts,
        spark.createDataFrame(
            [
                (REDELIVERED, 2, 1, WRITTEN, WRITTEN + timedelta(minutes=2)),
                (RECONSUMED, 1, 0, *[WRITTEN + timedelta(minutes=1)] * 2),
            ],
            counts.schema,
        ),
        ignore_nullable=True,
    )


def test_to_the_origin_with_everything_but_the_bookkeeping(spark, root, layout, write, again):
    write(4)
    done = again()
    assert (done.matched, done.selected, done.sent, done.dropped_by_fix, done.left_by_guard) == (4, 4, 4, 0, 0)
    assert done.causes[RECONSUMED]["sent"] == 2
    rows = (
        spark.read.format("delta")
        .load(str(read_topic(layout, TOPIC).path))
        .filter("sequence_id = 3")
        .select(
            F.col("payload").cast("string").alias("payload"),
            "partition",
            "partition_key",
            "ordering_key",
            "event_time",
            "producer_name",
            F.to_json(F.map_from_entries(F.array_sort(F.map_entries("properties")))).alias("properties"),
        )
    )
    properties = (
        '{"DEAD_LETTER_REPLAYS":"1","ORIGIN_MESSAGE_ID":"(7,3,1,-1)","ORIGIN_MESSAGE_IDY_TIME":"(7,3,1,-1)",'
        f'"REAL_SUBSCRIPTION":"{SUBSCRIPTION}","REAL_TOPIC":"{TOPIC}","colour":"red"}}'
    )
    expected = spark.createDataFrame([("3", 1, "k0", "o", EVENT, "reprocess-j", properties)], rows.schema)
    assert_df_equality(rows, expected, ignore_nullable=True)
    assert_sent(spark, layout, 0, 1, 2, 3)
    evidence = sent_letters(spark, root).select("job_id", "topic", "message_id", "destination", "replays", "number")
    assert_df_equality(
        evidence,
        spark.createDataFrame(
            [("j", LETTERS, f"(1,{number},-1,-1)", TOPIC, 1, number) for number in range(4)], evidence.schema
        ),
        ignore_row_order=True,
        ignore_nullable=True,
    )


def test_conditions_name_letters_and_another_job_takes_the_rest(spark, layout, write, again):
    write(12)
    minutes = [WRITTEN + timedelta(minutes=number) for number in range(13)]
    tried = again(
        dry_run=True,
        where="cause = 'max_redeliver_count'",
        since=minutes[2],
        until=minutes[9],
        keys=["k0", "k2"],
        limit=2,
    )
    assert (tried.is_dry_run, tried.matched, tried.selected, tried.sent) == (True, 2, 2, 0)
    assert not Reprocessing(layout).exists()
    done = again(where="cause = 'max_redeliver_count'", since=minutes[2], until=minutes[9], keys=["k0", "k2"], limit=2)
    assert done.sent == 2
    assert_sent(spark, layout, 2, 6)
    rest = again(job_id="rest", where="attempts < 9")
    assert (rest.matched, rest.taken_before, rest.sent) == (9, 2, 7)
    assert_sent(spark, layout, *range(9))


@pytest.mark.parametrize("place", ["after the selection", "after the first publish", "after the first chunk"])
def test_a_crash_anywhere_and_the_same_job_again_sends_each_letter_once(
    spark, layout, write, again, monkeypatch, place
):
    class Crash(Exception):
        pass

    def crash(*_, **__):
        raise Crash

    write(5)
    with monkeypatch.context() as patch:
        record = Reprocessing.record_chunk
        if place == "after the selection":
            patch.setattr(reprocess_run, "publish", crash)
        elif place == "after the first publish":
            patch.setattr(Reprocessing, "record_chunk", crash)
        else:
            patch.setattr(Reprocessing, "record_chunk", lambda *given: (record(*given), crash()))
        with pytest.raises(Crash):
            again(chunk_letters=3)
    write(2, first=5)
    done = again(
        chunk_letters=1,
        fix=None if place != "after the first publish" else lambda letters: letters.filter("position <> 0"),
    )
    assert (done.selected, done.sent) == (5, 5)
    assert again().sent == 5
    assert_sent(spark, layout, 0, 1, 2, 3, 4)


def new_keys(letters):
    """Of each second letter, as whoever knows nothing of base64 writes them."""
    is_second = F.col("position") % 2 == 1
    keys = {name: F.when(is_second, F.lit("new")).otherwise(F.col(name)) for name in ("partition_key", "ordering_key")}
    return letters.withColumns(keys).select("message_id", *SENT_COLUMNS)


def bytes_as_keys(letters):
    return letters.withColumns(dict.fromkeys(("partition_key", "ordering_key"), F.lit(bytearray(b"\x01\x02"))))


@pytest.mark.parametrize(
    ("fix", "second"),
    [(None, ("AP/+", True, "/w==", True)), (new_keys, ("new", None, "new", None)), (bytes_as_keys, None)],
)
def test_keys_of_bytes_stay_what_they_are(spark, root, layout, write, again, fix, second):
    """Unless the fix gives others, which are what their columns hold."""
    keys = {"partition_key": "AP/+", "partition_key_b64_encoded": True}
    write(2, **keys, ordering_key="/w==", ordering_key_b64_encoded=True)
    assert again(fix=fix, to="topic:sent").sent == 2
    columns = ("partition_key", "partition_key_b64_encoded", "ordering_key", "ordering_key_b64_encoded")
    found = spark.read.format("delta").load(str(read_topic(layout, "sent").path)).orderBy("sequence_id")
    expected = [("AP/+", True, "/w==", True), second] if second else [("AQI=", True, "AQI=", True)] * 2
    assert [tuple(row) for row in found.select(*columns).collect()] == expected
    assert dead_letters(spark, root, LETTERS).select(*columns).first() == ("AP/+", True, "/w==", True)


def test_a_fix_repairs_and_what_it_drops_stays_for_the_next_job(spark, layout, write, again):
    def fix(letters):
        return (
            letters.filter("position <> 1")
            .withColumn("payload", F.concat(F.lit("9"), F.col("payload").cast("string")))
            .withColumn("properties", F.create_map(F.lit("DEAD_LETTER_REPLAYS"), F.lit("0")))
        )

    write(3)
    tried = again(dry_run=True, fix=fix)
    done = again(fix=fix)
    assert (done.sent, done.dropped_by_fix, tried.dropped_by_fix) == (2, 1, 1)
    found = sent(spark, layout).select("payload", "replays")
    assert_df_equality(
        found,
        spark.createDataFrame([("90", "1"), ("92", "1")], found.schema),
        ignore_row_order=True,
        ignore_nullable=True,
    )
    rest = again(job_id="rest", to="topic:repaired")
    assert (rest.sent, rest.taken_before) == (1, 2)
    assert_sent(spark, layout, 1, topic="repaired", partitions=0)


@pytest.mark.parametrize(
    ("fix", "says"),
    [
        (lambda letters: letters.unionByName(letters), "twice"),
        (lambda letters: letters.withColumn("message_id", F.lit("(1,9,-1,-1)")), "did not get it"),
        (lambda letters: letters.drop("ordering_key"), "ordering_key"),
        (lambda letters: None, "NoneType"),
    ],
)
def test_a_fix_that_loses_track_of_letters_sends_nothing(spark, layout, write, again, fix, says):
    write(2)
    with pytest.raises(InvalidMessage, match=says):
        again(fix=fix)
    assert_sent(spark, layout)


def test_what_was_sent_back_too_often_or_says_no_origin_is_left(spark, layout, write, again):
    write(2, more={"DEAD_LETTER_REPLAYS": "2"})
    write(3, first=2, more={"DEAD_LETTER_REPLAYS": "3"})
    write(1, first=5, more={"REAL_TOPIC": "no/topic"})
    done = again()
    assert (done.matched, done.sent, done.left_by_guard, done.without_origin) == (6, 2, 3, 1)
    assert_sent(spark, layout, 0, 1, replays="3")


def test_to_one_subscription_only_through_its_retry_letter_topic(spark, layout, write, again):
    write(2)
    with pytest.raises(Timeout, match="no broker"):
        again(to="subscription", timeout=0.2)
    retry = read_topic(layout, f"{TOPIC}-{SUBSCRIPTION}-RETRY")
    [request] = (
        dataset_of(layout.broker_table("requests")).to_table(columns=["kind", "topic", "subscription"]).to_pylist()
    )
    assert request == {"kind": "create_subscription", "topic": str(retry.name), "subscription": SUBSCRIPTION}
    assert_sent(spark, layout, topic=str(retry.name), partitions=0)
    cursor = {
        "kind": "cursor",
        "topic": str(retry.name),
        "topic_id": retry.topic_id,
        "partition": -1,
        "subscription": SUBSCRIPTION,
        "mark_delete_position": -1,
    }
    AppendTable(layout.broker_table("cursor_ledger")).append(rows_of_round(1, [{"kind": "round"}, cursor], []))
    assert again(to="subscription").sent == 2
    assert_sent(spark, layout, 0, 1, topic=str(retry.name), partitions=0)


def test_a_rate_spaces_the_commits(spark, layout, write, again):
    waits = []
    write(3)
    again(rate=0.001, wait=waits.append)
    assert [round(wait, -2) for wait in waits] == [1000, 2000]
    assert_sent(spark, layout, 0, 1, 2)


def test_a_job_keeps_its_conditions(spark, write, again):
    write(2)
    again(where="position = 0")
    with pytest.raises(InvalidConfiguration, match="another where"):
        again(where="position = 1")
    write(1, topic="other-DLQ", first=7)
    with pytest.raises(InvalidConfiguration, match="was for topic"):
        again("other-DLQ", where="position = 0")


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"topic": "none"}, TopicNotFound, "none"),
        ({"to": "nowhere"}, InvalidConfiguration, "'nowhere'"),
        ({"where": "colour ="}, InvalidConfiguration, "colour"),
        ({"where": "shape = 1"}, InvalidConfiguration, "shape"),
        ({"rate": 0}, InvalidConfiguration, "rate"),
        ({"max_replays": 0}, InvalidConfiguration, "max_replays"),
        ({"job_id": "a b"}, InvalidTopicName, "job id"),
        ({"hashing_scheme": "MD5"}, InvalidConfiguration, "MD5"),
    ],
)
def test_bad_options_are_named(layout, write, again, options, error, says):
    write(1)
    with pytest.raises(error, match=says):
        again(**options)
    assert Reprocessing(layout).read_claims("j") == []


NOTHING = dict.fromkeys(
    (
        *("matched", "selected", "sent", "dropped_by_fix"),
        *("left_by_guard", "taken_before", "without_origin", "unreadable"),
    ),
    0,
)


@pytest.mark.parametrize("is_dry_run", [False, True])
def test_a_nightly_run_before_anything_died_has_nothing_to_do(spark, root, layout, is_dry_run):
    """No dead letter topic yet, named by topic and subscription, by itself, and by a policy; then one without a
    letter."""
    create_topic(layout, TOPIC, 2)
    policy = {
        "kind": "cursor",
        "topic": TOPIC,
        "topic_id": "t",
        "partition": 0,
        "subscription": "s",
        "mark_delete_position": -1,
        "read_position": 0,
        "properties": [("max_redeliver_count", "3"), ("dead_letter_topic", "graveyard")],
    }
    AppendTable(layout.broker_table("cursor_ledger")).append(rows_of_round(1, [policy, {"kind": "round"}], []))
    for where in ({"topic": "orders", "subscription": SUBSCRIPTION}, {"topic": LETTERS}, {"topic": "graveyard"}):
        report = reprocess_dead_letters(spark, root, job_id="nightly", dry_run=is_dry_run, **where)._asdict()
        assert report.items() >= {**NOTHING, "is_dry_run": is_dry_run, "causes": {}, "destinations": {}}.items()
        assert dead_letters(spark, root, **where).collect() == []
        assert count_by_cause(spark, root, **where).collect() == []
    assert not Reprocessing(layout).exists()
    create_topic(layout, LETTERS)
    report = reprocess_dead_letters(
        spark, root, "orders", subscription=SUBSCRIPTION, job_id="nightly", dry_run=is_dry_run
    )._asdict()
    assert report.items() >= NOTHING.items()


@pytest.mark.parametrize(
    "where", [{"topic": "nothing", "subscription": "s"}, {"topic": "nothing-s-DLQ"}, {"topic": "orders"}]
)
def test_a_topic_that_is_not_there_is_named_all_the_same(spark, root, where):
    with pytest.raises(TopicNotFound, match=where["topic"]):
        reprocess_dead_letters(spark, root, job_id="nightly", **where)


def test_letters_go_to_the_subscription_they_died_on_unless_told_otherwise(spark, root, write, caplog, monkeypatch):
    monkeypatch.setattr(
        reprocess_run, "prepare_retry_topic", lambda layout, name, subscription, timeout: create_topic(layout, name)
    )
    write(2)
    report = reprocess_dead_letters(spark, root, "orders", subscription=SUBSCRIPTION, job_id="nightly")
    retry = f"{TOPIC}-{SUBSCRIPTION}-RETRY"
    assert (report.sent, report.destinations) == (2, {retry: 2})
    assert f"no consumer of subscription {SUBSCRIPTION!r} reads {retry}" in caplog.text


def test_an_origin_that_is_gone_is_not_made_again(layout, write, again):
    write(1, more={"REAL_TOPIC": "persistent://public/default/gone"})
    with pytest.raises(TopicNotFound, match="gone"):
        again()


def test_a_chunk_without_the_others_is_no_letter(spark, layout, root, write):
    write(1)
    chunk = {"publish_id": "f" * 32, "entry_id": 0, "batch_size": 1, "partition": -1, "uuid": "u"}
    chunk |= {"chunk_id": 0, "num_chunks_from_msg": 2, "total_chunk_msg_size": 2, "payload": b"x"}
    AppendTable(read_topic(layout, LETTERS).path).append(MESSAGES.rows([chunk]))
    assert [row["payload"] for row in dead_letters(spark, root, LETTERS).collect()] == [b"0"]
