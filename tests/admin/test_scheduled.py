"""What is scheduled, as people see it: listed, counted, cancelled and moved, from Python and by command; and what stats
and peek say of it. The broker is a real one, without Spark."""

import json
import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.cli import app
from pulsar_spark.errors import InvalidConfiguration, InvalidMessage, SubscriptionNotFound
from pulsar_spark.link.requester import Requester
from pulsar_spark.protocol.keys.sticky_key import sticky_key_hash
from pulsar_spark.protocol.topics.message_id import parse_message_id
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.commands import say
from tests.support.waiting import eventually, nothing_comes, receive_values

SHARED = dict(consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest)
HOUR = 3_600_000


class Reminders:
    """Two subscriptions that have read a topic: "n" is at once; "a" to "f" wait, "f" for an hour, "e" for two... Keys
    are k0 and k1 in turns, and so is the property ``half``."""

    def __init__(self, root):
        self.broker, self.root = PlainBroker(root), root
        self.admin = Admin(f"delta:{root}", timeout_seconds=20)
        self.now = int(time.time() * 1000)

    def __enter__(self):
        self.broker.__enter__()
        self.client = pulsar.Client(f"delta:{self.root}")
        self.consumers = {name: self.client.subscribe("t", name, **SHARED) for name in ("s", "other")}
        producer = self.client.create_producer("t")
        for number, value in enumerate("abcdef"):
            half = str(number % 2)
            producer.send(
                value.encode(),
                partition_key=f"k{half}",
                properties={"half": half},
                deliver_at=self.now + (6 - number) * HOUR,
            )
        producer.send(b"n")
        for name in self.consumers:
            assert self.receive(name, 1) == ["n"]
        return self

    def __exit__(self, *failure):
        self.client.close()
        self.broker.__exit__(*failure)

    def receive(self, name: str, messages: int) -> list[str]:
        """The next ones, acknowledged, and none behind them."""
        consumer, found = self.consumers[name], []
        for _ in range(messages):
            message = consumer.receive(60_000)
            consumer.acknowledge(message)
            found.append(message.data().decode())
        assert nothing_comes(consumer)
        return found

    def listed(self, subscription=None, **select) -> str:
        rows = self.admin.scheduled("t", subscription, with_payload=True, **select)
        return "".join(row["payload"].decode() for row in rows)

    def at(self, hours: float) -> datetime:
        return datetime.fromtimestamp(self.now / 1000, UTC) + timedelta(hours=hours)


@pytest.fixture(scope="module")
def listing(tmp_path_factory):
    """Of which nothing is changed."""
    with Reminders(tmp_path_factory.mktemp("root")) as reminders:
        yield reminders


@pytest.fixture
def reminders(tmp_path):
    with Reminders(tmp_path / "root") as reminders:
        yield reminders


def test_what_waits_is_listed_in_the_order_it_comes_due(listing):
    first, *others = listing.admin.scheduled("t")
    assert first == {
        "messageId": "(6,0,-1,-1)",
        "topic": "persistent://public/default/t",
        "position": 5,
        "dueTime": datetime.fromtimestamp(listing.now / 1000 + 3600, UTC).isoformat(),
        "key": "k1",
        "properties": {"half": "1"},
        "subscriptions": ["other", "s"],
    }
    assert [row["position"] for row in others] == [4, 3, 2, 1, 0]
    counted = listing.admin.count_scheduled("t")
    assert (counted["entries"], counted["subscriptions"]) == (6, {"other": 6, "s": 6})


@pytest.mark.parametrize(
    "select, found",
    [
        ({"since": 2, "until": 4}, "ed"),
        ({"keys": ["k1"]}, "fdb"),
        ({"properties": {"half": "0"}, "until": 5}, "ec"),
        ({"ids": ["1:0:-1", "6:0"]}, "fa"),
        ({"ids": ["7:0"]}, ""),
        ({"keys": ["k2"]}, ""),
        ({"ids": ["1:0:-1", "6:0"], "keys": ["k0"], "since": -1}, "a"),
    ],
)
def test_it_is_chosen_by_time_key_property_and_id(listing, select, found):
    chosen = dict(select, ids=[parse_message_id(text) for text in select.get("ids", ())])
    chosen |= {name: listing.at(select[name]) for name in ("since", "until") if name in select}
    assert listing.listed(**chosen) == listing.listed("s", **chosen) == found


def test_stats_and_peek_know_what_waits(listing):
    stats = listing.admin.stats("t")["subscriptions"]["s"]
    names = ("msgBacklog", "msgDelayed", "ackedEntries", "unackedMessages", "markDeletePosition")
    assert [stats[name] for name in names] == [6, 6, 1, 0, -1]
    assert stats["nonContiguousDeletedMessagesRanges"] == 1
    assert b"".join(message.data() for message in listing.admin.peek_messages("t", "s", 9)) == b"abcdef"


@pytest.mark.parametrize(
    "ask, error",
    [
        (lambda admin: list(admin.scheduled("t", "nobody")), SubscriptionNotFound),
        (lambda admin: list(admin.scheduled("t", ids=[pulsar.MessageId(-1, 99, 0)])), InvalidMessage),
        (lambda admin: list(admin.scheduled("t", since="soon")), ValueError),
        (lambda admin: admin.cancel_scheduled("t", keys="ka"), ValueError),
        (lambda admin: admin.cancel_scheduled("t", keys=5), ValueError),
        (lambda admin: admin.cancel_scheduled("t", ids=["(1,0,-1,-1)"]), ValueError),
        (lambda admin: admin.reschedule("t", to=True, every=True), ValueError),
        (lambda admin: admin.cancel_scheduled("t"), InvalidConfiguration),
        (lambda admin: admin.reschedule("t", every=True), InvalidConfiguration),
        (lambda admin: admin.reschedule("t", to=5, by=timedelta(1), every=True), InvalidConfiguration),
        (lambda admin: admin.reschedule("t", by=timedelta(1)), InvalidConfiguration),
        (lambda admin: admin.reschedule("t", to=1 << 63, every=True), InvalidMessage),
        (lambda admin: admin.reschedule("t", by=timedelta.max, every=True), InvalidMessage),
    ],
)
def test_what_is_refused_changes_nothing(listing, ask, error):
    with pytest.raises(error):
        ask(listing.admin)
    assert listing.listed() == "fedcba" and not listing.broker.asked("reschedule")


@pytest.mark.parametrize("text", ["?", "gICAgICAgICAgICAgA", "ü"])
def test_positions_that_are_none_are_refused(listing, text):
    asked = {"kind": "ack", "topic": "persistent://public/default/t", "partition": -1, "subscription": "s"}
    properties = {"cancel": "true", "receipt": "true", "positions": text}
    with pytest.raises(InvalidMessage, match="positions"):
        listing.admin._requester.ask([asked | {"first": 0, "last": 6, "properties": properties}])
    assert listing.listed() == "fedcba"


def test_cancelled_for_one_subscription_or_for_all(reminders):
    admin = reminders.admin
    would = admin.cancel_scheduled("t", "s", keys=["k1"], dry_run=True)
    assert would == {"selected": {"s": 3}, "done": {}, "isDryRun": True} and reminders.listed("s") == "fedcba"
    done = admin.cancel_scheduled("t", "s", keys=["k1"], reason="rained off")
    assert done == {"selected": {"s": 3}, "done": {"s": 3}, "isDryRun": False}
    assert (reminders.listed("s"), reminders.listed("other")) == ("eca", "fedcba")
    told = []
    done = admin.cancel_scheduled("t", properties={"half": "0"}, until=reminders.at(3), tell=told.append)
    assert (done["done"], told) == ({"other": 1, "s": 1}, [1, 2])
    (asked,) = [request for request in reminders.broker.asked("ack") if request.properties.get("reason")][:1]
    assert (asked.properties["cancel"], asked.properties["reason"]) == ("true", "rained off")
    stats = admin.stats("t")["subscriptions"]
    assert [(stats[name]["msgBacklog"], stats[name]["msgDelayed"]) for name in ("s", "other")] == [(2, 2), (5, 5)]
    reminders.broker.advance(7 * 3600)
    assert (reminders.receive("s", 2), reminders.receive("other", 5)) == ([*"ca"], [*"fdcba"])
    eventually(lambda: {each["markDeletePosition"] for each in admin.stats("t")["subscriptions"].values()} == {6})


def test_moved_to_a_time_or_by_one(reminders):
    admin = reminders.admin
    assert admin.reschedule("t", "s", to=reminders.at(0.5), keys=["k0"])["done"] == {"s": 3}
    assert admin.reschedule("t", "s", by=timedelta(hours=-2), keys=["k1"])["done"] == {"s": 6 - 3}
    assert (reminders.receive("s", 1), reminders.receive("other", 0)) == (["f"], []), "an hour ago is at once"
    assert (reminders.listed("s"), reminders.listed("other")) == ("acedb", "fedcba")
    admin.reschedule("t", "s", to=reminders.at(100), ids=[parse_message_id("1:0")])
    reminders.broker.advance(4.5 * 3600)
    assert (sorted(reminders.receive("s", 4)), reminders.receive("other", 4)) == ([*"bcde"], [*"fedc"])
    assert reminders.listed("s") == "a"


@pytest.mark.parametrize("what", ["cancel", "reschedule"])
def test_what_was_delivered_meanwhile_stays_as_it_is(reminders, monkeypatch, what):
    """It came due between the look and the request."""
    admin, ask = reminders.admin, reminders.admin._requester.ask

    def later(requests):
        reminders.broker.advance(2 * 3600)
        assert receive_values(reminders.consumers["s"], 2) == ["f", "e"]
        return ask(requests)

    monkeypatch.setattr(admin._requester, "ask", later)
    admin._requester.timeout_seconds = 3 * 3600  # the request is to hold by the broker's clock, which is ahead
    until = reminders.at(3.5)
    if what == "cancel":
        done = admin.cancel_scheduled("t", "s", until=until)
    else:
        done = admin.reschedule("t", "s", to=reminders.at(50), until=until)
    assert done == {"selected": {"s": 3}, "done": {"s": 1}, "isDryRun": False}
    stats = admin.stats("t")["subscriptions"]["s"]
    assert (stats["unackedMessages"], stats["msgBacklog"]) == (2, 5 if what == "cancel" else 6)


def run(reminders, *arguments: str) -> str:
    return say(reminders.root, "delayed", *arguments, columns=300)


def test_by_command(reminders, tmp_path):
    lines = [json.loads(line) for line in run(reminders, "list", "t", "-n", "2", "--json").splitlines()]
    assert [(line["position"], line["key"], "payload" in line) for line in lines] == [
        (5, "k1", False),
        (4, "k0", False),
    ]
    shown = run(reminders, "list", "t", "-s", "s", "--key", "k1", "-o", str(tmp_path / "payloads"))
    assert "(6,0,-1,-1)" in shown and "half='1'" in shown and shown.count("k1") == 3
    assert (tmp_path / "payloads").read_bytes() == b"f\nd\nb\n"
    assert json.loads(run(reminders, "count", "t", "--property", "half=1", "--json"))["subscriptions"] == {
        "other": 3,
        "s": 3,
    }
    until = reminders.at(2.5).isoformat()
    assert "2 would be cancelled" in run(reminders, "cancel", "t", "-s", "s", "--until", until, "--dry-run")
    assert "2 cancelled" in run(reminders, "cancel", "t", "-s", "s", "--until", until, "--reason", "no more")
    moved = json.loads(run(reminders, "reschedule", "t", "-s", "s", "--by", "3600", "--all", "--json"))
    assert moved == {"selected": {"s": 4}, "done": {"s": 4}, "isDryRun": False}
    assert run(reminders, "count", "t", "-s", "s").startswith("4 wait, from ")
    with pytest.raises(InvalidConfiguration, match="property 'half': give NAME=VALUE"):
        run(reminders, "count", "t", "--property", "half")
    with pytest.raises(InvalidConfiguration, match="or --all"):
        run(reminders, "cancel", "t")


def test_what_was_delivered_meanwhile_is_said_by_command(reminders, monkeypatch):
    ask = Requester.ask

    def later(requester, requests):
        reminders.broker.advance(2 * 3600)
        assert receive_values(reminders.consumers["s"], 2) == ["f", "e"]
        return ask(requester, requests)

    monkeypatch.setattr(Requester, "ask", later)
    until = ("--until", reminders.at(3.5).isoformat())
    said = run(reminders, "cancel", "t", "-s", "s", *until, "--timeout", "10800")  # the broker's clock is ahead
    assert said.startswith("1 of 3 cancelled; the others were delivered or acknowledged meanwhile")


def test_produced_by_command(reminders):
    """What --deliver-at and --deliver-after say."""
    for options in (["--deliver-at", reminders.at(8).isoformat()], ["--deliver-after", "32400"]):
        done = CliRunner().invoke(app, ["produce", "t", "later", *options, "--root", str(reminders.root)])
        assert done.exception is None
    eventually(lambda: reminders.admin.count_scheduled("t", "s")["entries"] == 8)
    *_, eighth, ninth = reminders.admin.scheduled("t", "s")
    assert eighth["dueTime"] == reminders.at(8).isoformat(timespec="microseconds") and ninth["position"] == 8
    both = ["--deliver-at", "2030-01-01", "--deliver-after", "1"]
    refused = CliRunner().invoke(app, ["produce", "t", "later", *both, "--root", str(reminders.root)])
    assert isinstance(refused.exception, InvalidConfiguration)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["produce", "t", "x", "--deliver-after", "1e20"], r"--deliver-after '1e\+20': give seconds"),
        (["produce", "t", "x", "--deliver-after", "nan"], "--deliver-after 'nan': give seconds"),
        (["produce", "t", "x", "--deliver-after", "1e13"], "exceeds 64 bits"),
        (["produce", "t", "x", "--deliver-at", "10000-01-01"], "--deliver-at '10000-01-01': give a time such as"),
        (["delayed", "reschedule", "t", "--all", "--by", "-inf"], "--by '-inf': give seconds"),
        (["delayed", "reschedule", "t", "--all", "--by", "1e13"], "exceeds 64 bits"),
        (["delayed", "reschedule", "t", "--all", "--to", "soon"], "--to 'soon': give a time such as"),
    ],
)
def test_times_that_are_none_are_refused_by_command(listing, arguments, said):
    done = CliRunner().invoke(app, [*arguments, "--root", str(listing.root)])
    assert isinstance(done.exception, InvalidConfiguration | InvalidMessage)
    assert re.search(said, str(done.exception))
    assert (listing.listed(), listing.broker.asked("reschedule")) == ("fedcba", [])
    assert listing.admin.stats("t")["msgInCounter"] == 7


def test_times_far_from_here_by_command(reminders):
    """One that has passed is at once, before 1970 too; one in the year 10000 waits, and is shown."""
    options = {"x": ["--deliver-at", "1969-07-20T20:17:40Z"], "y": ["--deliver-after", "-1"]}
    for value, option in (options | {"z": ["--deliver-after", "1e12"]}).items():
        done = CliRunner().invoke(app, ["produce", "t", value, *option, "--root", str(reminders.root)])
        assert done.exception is None
    assert reminders.receive("s", 2) == ["x", "y"]

    def listed_last() -> dict:
        return json.loads(run(reminders, "list", "t", "-s", "s", "--json").splitlines()[-1])

    eventually(lambda: listed_last()["position"] == 9)
    last = listed_last()
    assert last["dueTime"].startswith("33715-")
    moved = run(reminders, "reschedule", "t", "-s", "s", "--by", "-1e12", "--id", last["messageId"].strip("()"))
    assert moved.startswith("1 moved") and reminders.receive("s", 1) == ["z"]


def test_moved_beyond_64_bits_none_is_moved(reminders):
    """Not those either of a subscription that comes before the one in question."""
    admin = reminders.admin
    admin.reschedule("t", "s", to=9_223_372_036_854_774, ids=[parse_message_id("1:0")])
    with pytest.raises(InvalidMessage, match="exceeds 64 bits"):
        admin.reschedule("t", by=timedelta(seconds=1), every=True)
    assert len(reminders.broker.asked("reschedule")) == 1
    assert (reminders.listed("s"), reminders.listed("other")) == ("fedcba", "fedcba")


def test_hashes_that_drain_are_found_of_what_came_due(tmp_path):
    """Anna holds what came due before ben joined and took over half of the hashes."""
    with PlainBroker(tmp_path / "root") as broker:
        client, admin = pulsar.Client(f"delta:{tmp_path / 'root'}"), Admin(f"delta:{tmp_path / 'root'}")
        admin.create_topic("t")
        admin.create_subscription("t", "s", "earliest")
        kind = SHARED | {"consumer_type": pulsar.ConsumerType.KeyShared}
        anna = client.subscribe("t", "s", consumer_name="anna", **kind)
        producer = client.create_producer("t")
        for number in range(12):
            producer.send(b"m", partition_key=f"k{number}", deliver_after=timedelta(hours=13 - number))
        eventually(lambda: admin.stats("t")["subscriptions"]["s"]["msgDelayed"] == 12)
        broker.advance(14 * 3600)
        held = {}
        for _ in range(12):
            message = anna.receive(60_000)
            held[message.partition_key()] = message
        admin._requester.timeout_seconds = 24 * 3600
        other = pulsar.Client(f"delta:{tmp_path / 'root'}", operation_timeout_seconds=24 * 3600)
        other.subscribe("t", "s", consumer_name="ben", **kind)
        owned = [row for row in admin.hash_ranges("t", "s") if row["consumer_name"] == "ben"]
        hashes = {key: sticky_key_hash(key.encode()) for key in held}
        of_ben = sorted(
            number
            for key, number in hashes.items()
            if any(row["range_start"] <= number % row["axis_size"] <= row["range_end"] for row in owned)
        )
        draining = admin.draining_hashes("t", "s")
        assert of_ben and [row["sticky_key_hash"] for row in draining] == of_ben
        assert [row["first"] for row in draining] == [
            int(key[1:]) for number in of_ben for key in held if hashes[key] == number
        ]
        assert {(row["owner_name"], row["consumer_name"], row["entries"]) for row in draining} == {("ben", "anna", 1)}
        other.close()
        client.close()
