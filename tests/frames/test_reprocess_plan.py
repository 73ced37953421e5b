"""Where letters go and which are left, without Spark."""

from datetime import datetime, timezone

import pytest

from pulsar_spark.errors import InvalidConfiguration, InvalidTopicName
from pulsar_spark.frames.letters.reprocess_plan import Letter, checked_target, plan_letters
from pulsar_spark.frames.letters.reprocess_run import Chosen, Run
from pulsar_spark.frames.publishing.producer import utc_now
from pulsar_spark.storage.cursor_ledger.reprocessing import Claim, Job, Reprocessing
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic, prepare_root

A, B = "persistent://public/default/a", "persistent://public/default/b"


def letter(position, origin=A, subscription="s", replays=0, cause="c", wrong=None):
    return Letter(-1, position, f"(1,{position},-1,-1)", origin, subscription, cause, replays, wrong)


def plan(*letters, topic=f"{A}-s-DLQ", to="origin", taken=frozenset(), max_replays=3, limit=None, chunk_letters=2):
    return plan_letters(
        letters, taken, topic=topic, to=to, max_replays=max_replays, limit=limit, chunk_letters=chunk_letters
    )


def test_chunks_and_numbers_count_per_destination_in_order_of_position():
    found = plan(letter(3), letter(0), letter(2, origin=B), letter(1), letter(4))
    assert [(claim.destination, claim.chunk, claim.number, claim.position) for claim in found.claims] == [
        (A, 0, 0, 0),
        (A, 0, 1, 1),
        (B, 0, 0, 2),
        (A, 1, 2, 3),
        (A, 1, 3, 4),
    ]


@pytest.mark.parametrize(
    ("topic", "origin", "destination"),
    [
        (f"{A}-s-DLQ", A, f"{A}-s-RETRY"),
        (f"{A}-s-DLQ", B, f"{A}-s-RETRY"),
        (f"{A}-s-DLQ", f"{A}-partition-3", f"{A}-s-RETRY"),
        ("persistent://x/y/dead", B, f"{B}-s-RETRY"),
        ("persistent://x/y/dead", f"{B}-partition-3", f"{B}-s-RETRY"),
    ],
)
def test_the_retry_letter_topic_is_named_like_the_dead_letter_topic_or_after_the_origin(topic, origin, destination):
    assert [claim.destination for claim in plan(letter(0, origin), topic=topic, to="subscription").claims] == [
        destination
    ]


def test_where_the_retry_letter_topic_cannot_be_it_is_said_where_else_letters_may_go():
    asked = letter(0, A)._replace(subscription="a / b")
    with pytest.raises(InvalidTopicName, match="'a / b'.* send them to 'origin', or to 'topic:NAME'"):
        plan(asked, topic="persistent://x/y/dead", to="subscription")
    assert plan(asked, topic="persistent://x/y/dead", to="origin").claims


def test_the_reason_why_a_letter_is_left_is_counted_by_cause():
    found = plan(
        letter(0),
        letter(1, replays=3, cause="d"),
        letter(2, origin=None),
        letter(3, origin="x/y"),
        letter(4, replays=2),
        letter(5, wrong="its chunks"),
        letter(6, origin=None, wrong="its chunks"),
        taken={"(1,0,-1,-1)"},
    )
    assert [(claim.position, claim.replays) for claim in found.claims] == [(4, 3)]
    assert found.left == {
        "c": {"taken_before": 1, "left_by_guard": 0, "without_origin": 3, "unreadable": 1},
        "d": {"taken_before": 0, "left_by_guard": 1, "without_origin": 0, "unreadable": 0},
    }
    assert [left.position for left in found.unreadable] == [5]
    assert plan(letter(0, subscription=None), to="subscription").claims == []
    assert len(plan(letter(0, origin=None), to=f"topic:{B}").claims) == 1


def test_what_is_behind_the_limit_is_not_counted():
    found = plan(letter(0, replays=3), letter(1), letter(2), letter(3, replays=3), limit=2)
    assert ([claim.position for claim in found.claims], found.left["c"]["left_by_guard"]) == ([1, 2], 1)


@pytest.mark.parametrize(
    ("to", "error"),
    [
        ("nowhere", InvalidConfiguration),
        (None, InvalidConfiguration),
        ("topic:", InvalidTopicName),
        ("topic:a b/c", InvalidTopicName),
    ],
)
def test_other_targets_are_refused(to, error):
    with pytest.raises(error):
        checked_target(to)


def test_a_job_that_two_begin_at_once_has_one_selection(tmp_path, monkeypatch):
    """In an object store nothing keeps the second one out: here it is done just behind the first one's look."""
    layout = Layout(tmp_path / "root")
    prepare_root(layout)
    topic, table, seen = create_topic(layout, "t-s-DLQ"), Reprocessing(layout), []
    job = Job("j", str(topic.name), topic.topic_id, datetime(2026, 1, 1, tzinfo=timezone.utc), 0, {}, {})

    def claims(message_id):
        return [Claim("d", 0, 0, message_id, -1, 0, "s", None, 0)]

    def read_job(self, job_id, read=Reprocessing.read_job):
        found = read(self, job_id)
        if not seen:
            seen.append(found)
            table.record_job(job, claims("theirs"), table.version())
        return found

    def plan(self, _selecting):
        return Chosen(job, claims("ours"))

    monkeypatch.setattr(Reprocessing, "read_job", read_job)
    monkeypatch.setattr(Run, "_plan", plan)
    run = Run(None, layout, topic, "j", {}, None, "JavaStringHash", utc_now)
    assert [claim.message_id for claim in run.choose(None).claims] == ["theirs"]
