"""Rows of ``requests`` that no client of ours writes: each is refused by name, changes nothing, and the rest is served,
also by the next broker."""

import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.admin.upkeep import trim
from pulsar_spark.broker.bundle.journal import Journal
from pulsar_spark.broker.requests.reading import read_request_batch
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.policies.policies import POLICIES
from tests.broker.hostile import HEALTHY, ILL, SICK, HostileRoot, commit_file, data_files, request
from tests.support.requests import On

DAY_MS = 86_400_000


def without(row: dict, **columns) -> dict:
    return row | columns


REFUSED = {
    "subscription null": (without(ILL.subscribe("x"), subscription=None), "InvalidConfiguration"),
    "subscription null, created": (without(ILL.create_subscription("Latest"), subscription=None), "InvalidTopicName"),
    "subscription no name": (On(SICK, subscription=" ").subscribe("x"), "InvalidTopicName"),
    "subscription too long": (On(SICK, subscription="s" * 5000).subscribe("x"), "InvalidConfiguration"),
    "subscription no name, created": (
        On(SICK, subscription="pulsar.dedup").create_subscription("Earliest"),
        "InvalidTopicName",
    ),
    "consumer null": (without(ILL.subscribe("x"), consumer_id=None), "InvalidConfiguration"),
    "client null": (without(ILL.subscribe("x"), client_id=None), "InvalidConfiguration"),
    "lease of 9,500 years": (ILL.subscribe("x", lease_ms=300_000_000_000_000), "InvalidConfiguration"),
    "lease of more than a day": (ILL.subscribe("x", lease_ms=DAY_MS + 1), "InvalidConfiguration"),
    "short name, refused for its type": (
        On("sick", subscription="ill").subscribe("x", "Exclusive"),
        "SubscriptionBusy",
    ),
    "partition null": (without(ILL.subscribe("x"), partition=None), "TopicNotFound"),
    "topic no name": (without(ILL.subscribe("x"), topic="a b/c"), "InvalidTopicName"),
    "skip of a negative number": (ILL.skip(-5), "InvalidConfiguration"),
    "ack set with a null word": (ILL.ack(1, ack_set=[None], receipt=True), "InvalidMessage"),
    "ack set longer than the batch": (ILL.ack(1, ack_set=[1] * 2, receipt=True), "InvalidMessage"),
    "given back unseen, and later": (
        without(ILL.negative_ack("c", 0, delay_ms=5), properties={"is_unseen": "true", "receipt": "true"}),
        "InvalidConfiguration",
    ),
    "given back unseen, or not": (
        without(ILL.negative_ack("c", 0), properties={"is_unseen": "yes", "receipt": "true"}),
        "InvalidConfiguration",
    ),
    "cancelled, or not": (
        without(ILL.ack(1), properties={"cancel": "false!", "receipt": "true"}),
        "InvalidConfiguration",
    ),
    "policy of a topic that is not": (
        without(ILL.policy("message_ttl_seconds", 5), topic="persistent://public/default/none"),
        "TopicNotFound",
    ),
    "policy of no namespace": (
        request("policy", properties={"namespace": "a/b/c", "name": "message_ttl_seconds", "value": "1"}),
        "InvalidTopicName",
    ),
    "kind null": (request("subscribe") | {"kind": None, "properties": {"receipt": "true"}}, "InvalidConfiguration"),
    **{
        f"{name} too large ({len(value)} digits)": (ILL.policy(name, value), "InvalidConfiguration")
        for name in POLICIES
        if name != "backlog_quota_policy"
        for value in ("9" * 19, "9" * 5000)
    },
}


@pytest.fixture(scope="module")
def unmoved(tmp_path_factory):
    """A root that all these rows are asked of; at the end it serves as if none had been, also by the next broker."""
    found = HostileRoot(tmp_path_factory.mktemp("unmoved") / "root")
    yield found
    found.holds()


@pytest.mark.parametrize("case", REFUSED)
def test_a_row_that_cannot_be_is_refused_by_name_and_changes_nothing(unmoved, case):
    row, error = REFUSED[case]
    bundle = unmoved.rounds.bundle
    before = unmoved.engine.state(SICK, -1, "ill"), bundle.policies.copy(), set(bundle.topics)
    ((refused, text),) = unmoved.ask(row)
    assert (refused, len(text) < 500) == (error, True)
    assert before == (unmoved.engine.state(SICK, -1, "ill"), bundle.policies, set(bundle.topics))
    assert unmoved.engine.subscriptions(SICK) == ["ill"]
    unmoved.flows()


def test_a_topic_is_one_topic_in_all_its_spellings(hostile):
    for spelling in ("sick", "public/default/sick"):
        on = On(spelling, subscription="ill")
        assert [
            reply and reply[0] for reply in hostile.ask(on.subscribe("d"), on.flow("d", 1), on.ack(0, receipt=True))
        ] == [None, None, None]
    assert set(hostile.rounds.bundle.topics) == {HEALTHY, SICK}
    assert hostile.engine.state(SICK, -1, "ill")["mark_delete_position"] == 0
    hostile.holds()


def test_a_hundred_thousand_words_take_no_time(hostile):
    started = time.thread_time()
    ((error, _),) = hostile.ask(ILL.ack(1, ack_set=[-1] * 100_000, receipt=True))
    assert error == "InvalidMessage"
    assert time.thread_time() - started < 5, "of the processor's time: a second; 15 s before"


@pytest.mark.parametrize("value", ["99999999999", "9" * 5000, "-1", "1.5", "٣"])
def test_the_command_line_refuses_a_policy_that_is_no_number_it_takes(hostile, value):
    with pytest.raises(InvalidConfiguration, match="message_ttl_seconds.* is not a whole number from 0 to 1000000000"):
        Admin(f"delta:{hostile.layout.root}", timeout_seconds=0).set_policy(SICK, "message_ttl_seconds", value)


def test_what_an_older_broker_let_through_kills_no_start(hostile):
    """A policy of 5,000 digits, and a lease that ends after all calendars, stand in committed rows."""
    bundle = hostile.rounds.bundle
    bundle.policies[SICK, "message_ttl_seconds"] = "9" * 5000
    bundle.policies[SICK, "retention_seconds"] = "9" * 30
    (consumer,) = (
        consumer for cursor in bundle.cursors.values() if cursor.topic == SICK for consumer in cursor.consumers.values()
    )
    consumer.properties["lease_ms"] = "3" + "0" * 14
    bundle.leases[consumer.client_id] = 3 * 10**17
    hostile.restart()
    hostile.holds()
    (lease,) = {each for client, each in hostile.rounds.bundle.lease_ms.items() if client.endswith(SICK)}
    assert lease == DAY_MS
    admin = Admin(f"delta:{hostile.layout.root}")
    assert admin.stats(SICK)["subscriptions"]["ill"]["consumers"]
    assert trim(hostile.layout, SICK)


def test_refused_acks_are_said_once_and_counted(hostile, caplog):
    journal = Journal()
    hostile.write(*(ILL.ack(10_000 + number) for number in range(500)))
    journal.note(
        hostile.rounds.run(*read_request_batch(hostile.requests, after=hostile.rounds.bundle.requests_version)), 0.1
    )
    assert [
        record.getMessage().startswith("refused ack") for record in caplog.records if "refused" in record.getMessage()
    ] == [True]
    journal.end_minute()
    assert "refused 499 times more: InvalidMessage" in caplog.text
    hostile.holds()


class TestCommitsThatCannotBeRead:
    """Of three commits the one in the middle is broken: it is set aside, the others are done, and it is done when it is
    mended."""

    @pytest.fixture
    def version(self, only_in_files, hostile) -> int:
        hostile.write(ILL.ack(0))
        version = hostile.write(ILL.ack(1), ILL.ack(2))
        hostile.write(ILL.ack(3))
        return version

    def check(self, hostile, entry_id: str, cause: str, mend=None):
        hostile.serve()
        assert hostile.engine.state(SICK, -1, "ill")["acknowledged"] == [(3, 3)]
        assert [(entry.id, cause in entry.text) for entry in hostile.aside.values()] == [(entry_id, True)]
        hostile.holds()
        assert list(hostile.aside) == [entry_id], "it is there after a restart"
        ((error, text),) = hostile.ask(request("retry_set_aside", properties={"id": entry_id}))
        assert (error, entry_id in text) == ("UnknownError", True)
        mend()
        assert hostile.ask(request("retry_set_aside", properties={"id": entry_id})) == [(None, "1")]
        assert hostile.engine.state(SICK, -1, "ill")["mark_delete_position"] == 3
        assert hostile.aside == {}
        hostile.holds()

    def test_half_a_line(self, hostile, version):
        file = commit_file(hostile.requests, version)
        whole = file.read_text()
        file.write_text(whole[: len(whole) * 2 // 3])
        self.check(hostile, f"request-{version}", f"commit {version}", lambda: file.write_text(whole))

    def test_a_file_that_is_missing(self, hostile, version):
        (file,) = data_files(hostile.requests, version)
        kept = file.rename(file.with_suffix(".kept"))
        self.check(hostile, f"request-{version}", file.name, lambda: kept.rename(file))

    def test_a_file_that_is_no_parquet(self, hostile, version):
        (file,) = data_files(hostile.requests, version)
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        self.check(hostile, f"request-{version}", "", lambda: file.write_bytes(whole))

    def test_another_json(self, hostile, version):
        file = commit_file(hostile.requests, version)
        whole = file.read_text()
        file.write_text("5\n")
        self.check(hostile, f"request-{version}", "", lambda: file.write_text(whole))

    def test_a_commit_that_is_gone(self, hostile, version):
        file = commit_file(hostile.requests, version)
        kept = file.rename(file.with_suffix(".kept"))
        self.check(hostile, f"request-{version}", "gone", lambda: kept.rename(file))

    def test_it_can_be_dropped(self, hostile, version):
        commit_file(hostile.requests, version).write_text("{")
        hostile.serve()
        assert hostile.ask(request("drop_set_aside", properties={"all": "true"})) == [(None, "1")]
        assert hostile.aside == {}
        hostile.holds()
        assert hostile.aside == {}


def test_a_text_that_is_no_text_ends_its_row_only(only_in_files, hostile):
    """A Parquet file may say that bytes are text which are not."""
    version = hostile.write(ILL.ack(0), ILL.ack(1, receipt=True), ILL.ack(2))
    (file,) = data_files(hostile.requests, version)
    rows = pq.ParquetFile(file).read()
    no_text = pa.array([b"0", b"\xff", b"2"], pa.binary()).view(pa.string())
    pq.write_table(rows.set_column(rows.schema.names.index("client_id"), "client_id", no_text), file)
    hostile.serve()
    assert list(hostile.aside) == [f"request-{version}-1"]
    assert hostile.engine.state(SICK, -1, "ill")["acknowledged"] == [(2, 2)]
    hostile.holds()


def test_skipping_says_how_much_there_was(hostile):
    assert hostile.ask(ILL.skip(3), ILL.skip(3), ILL.skip(3), ILL.skip(0)) == [
        (None, "3"),
        (None, "1"),
        (None, "0"),
        (None, "0"),
    ]
    assert hostile.engine.state(SICK, -1, "ill")["mark_delete_position"] == 3
    assert hostile.ask(ILL.skip(10)) == [(None, "0")]
    assert hostile.engine.publish(SICK, -1, [1]) == [4]
    hostile.serve()
    assert hostile.engine.state(SICK, -1, "ill")["mark_delete_position"] == 3


def test_a_request_that_came_too_late_is_not_carried_out(hostile):
    """Two skips were asked for while no broker ran, and their clients were told that they failed."""

    def skip(until_ms: object, *, messages: int = 1) -> dict:
        row = ILL.skip(messages)
        return row | {"properties": row["properties"] | {"valid_until_ms": str(until_ms)}}

    hostile.engine.now_ms = 30_001
    late, text = zip(*hostile.ask(skip(30_000), skip(30_000)))
    assert late == ("Timeout", "Timeout") and "1 ms later" in text[0]
    assert hostile.engine.state(SICK, -1, "ill")["mark_delete_position"] == -1
    assert hostile.ask(skip(30_001), skip("soon"), skip(-1), skip("9" * 30))[1:] == [
        ("InvalidConfiguration", f"skip: valid_until_ms {value!r} is not a whole number from 0 to {10**15}")
        for value in ("soon", "-1", "9" * 30)
    ]
    assert hostile.engine.state(SICK, -1, "ill")["mark_delete_position"] == 0
    hostile.holds()


def test_a_late_request_renews_no_lease(tmp_path):
    hostile = HostileRoot(tmp_path / "root")
    hostile.ask(ILL.subscribe("brief", lease_ms=1000, client="brief"))
    hostile.engine.now_ms = 900
    hostile.write(request("keep_alive", client="brief", properties={"valid_until_ms": 500}))
    hostile.serve()
    hostile.engine.now_ms = 1000
    hostile.serve()
    assert "brief" not in hostile.engine.state(SICK, -1, "ill")["consumers"]
