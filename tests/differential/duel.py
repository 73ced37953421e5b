"""One history on both: the reference broker and the real one, compared after every round."""

from pathlib import Path

from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from tests.differential.counters import Counters
from tests.differential.strategies import CRASHES, Turn
from tests.spec.history import publish
from tests.spec.table import asked, entries
from tests.support.crashes import Crash, crash_at
from tests.support.model import Model
from tests.support.model_cursor import Cursor
from tests.support.next_due import next_due
from tests.support.requests import On
from tests.support.spark_engine import new_engine

NAMESPACE = "persistent://public/default"
TOPICS = {"t": (f"{NAMESPACE}/t", -1), "p0": (f"{NAMESPACE}/p", 0), "p1": (f"{NAMESPACE}/p", 1)}
PARTITIONS = {f"{NAMESPACE}/t": 0, f"{NAMESPACE}/p": 2}


class Duel:
    """Plays turns on the model and on an engine at *root*, without Spark if *spark* is None; *options* are both
    brokers'. AssertionError where they differ."""

    def __init__(self, spark, root: Path, **options):
        self.model, self.engine = Model(**options), new_engine(spark, root, **options)
        self.now_ms, self.is_settled = 0, False
        for topic, partitions in PARTITIONS.items():
            self.model.create_topic(topic, partitions)
            self.engine.create_topic(topic, partitions)
        self.counters = Counters(self.engine.topic_ids)

    def play(self, turns: list[Turn]) -> None:
        for number, turn in enumerate(turns):
            self._play(turn, f"in turn {number}")

    def _play(self, turn: Turn, where: str) -> None:
        self.now_ms += turn.later_ms
        requests = [request for step in turn.steps if (request := self._take(step))]
        if turn.crash == "between":
            self._restart()
        before = self.engine.number
        is_dead = self._run(requests, turn.crash)
        is_done = not is_dead or self._is_in_table(before)
        if not is_done:
            self._restart()
            before = self.engine.number
            self._run(requests)
        expected = self.model.round(requests, self.now_ms, number=before)
        if is_dead and is_done:
            self._restart()
        found = self.engine.committed()
        self._compare(found, expected, where)

    def _places(self) -> dict[str, Cursor]:
        """The model's cursors, by the words that steps name them with."""
        names = {place: name for name, place in TOPICS.items()}
        return {
            f"{names[cursor.topic, cursor.partition]}/{cursor.subscription}": cursor
            for cursor in self.model.cursors.values()
        }

    def _compare(self, found: dict, expected: dict, where: str) -> None:
        same(
            f"{where}, deliveries",
            *({tuple(delivery) for delivery in each["deliveries"]} for each in (found, expected)),
        )
        same(f"{where}, replies", *(sorted(map(_said, each["replies"])) for each in (found, expected)))
        counted = {reply.request_id for reply in expected["replies"] if reply.text and reply.text.isdecimal()}
        same(f"{where}, counts", *(_counts(each["replies"], counted) for each in (found, expected)))
        for topic in PARTITIONS:
            same(
                f"{where}, subscriptions of {topic}", self.engine.subscriptions(topic), self.model.subscriptions(topic)
            )
        for place, cursor in self.model.cursors.items():
            if cursor.due is not None and not self.engine.waits_by_deliver_time(*place):
                cursor.end_waiting()
            state, expected = self.engine.state(*place), self.model.state(*place)
            for name in expected:
                same(f"{where}, {name} of {place}", state[name], expected[name])
        same(f"{where}, counters", self.counters.differences(self.model, self.engine.latest), [])
        for topic, subscription in {(place[0], place[2]) for place in self.model.cursors}:
            for read in ("letters", "letters_put_off"):
                found, expected = (
                    self._letters(broker, read, topic, subscription) for broker in (self.engine, self.model)
                )
                same(f"{where}, {read} of {topic} {subscription}", found, expected)

    def _letters(self, broker, read: str, topic: str, subscription: str) -> list:
        """A message outside a batch may be put off by any index, and its letter says so in the test's own words: here
        all of these are -1."""
        return sorted(
            letter._replace(
                batch_index=letter.batch_index
                if self.model.batches[topic, letter.partition][letter.position] > 1
                else -1
            )
            for letter in getattr(broker, read)(topic, subscription)
        )

    def _take(self, step: str) -> dict | None:
        """Publish, or give the request."""
        place, _, text = step.partition(": ")
        topic, partition = TOPICS[place.partition("/")[0]]
        verb, *arguments = text.split()
        if verb != "publish":
            return asked(On(topic, partition, place.partition("/")[2]), text.split())
        for broker in (self.model, self.engine):
            publish(broker, topic, partition, entries(" ".join(arguments)), self.now_ms)
        return None

    def _run(self, requests: list[dict], crash: str | None = None) -> bool:
        """Run a round if the broker's loop would; True if it died of *crash*."""
        engine, before = self.engine, self.engine.number
        if not (requests or self._has_news()):
            return False
        when, table = crash.split() if crash in CRASHES else ("never", "ledgers")
        with crash_at(engine, table, when):
            try:
                engine.run(requests, self.now_ms)
            except Crash:
                return True
        self.is_settled = engine.number == before
        return False

    def _has_news(self) -> bool:
        bundle = self.engine.rounds.bundle
        due = next_due(bundle, bundle.now.own)
        return not self.is_settled or bundle.has_news() or (due is not None and due <= 1000 * self.now_ms)

    def _is_in_table(self, number: int) -> bool:
        """Was round *number* committed?"""
        rows = read_latest(self.engine.layout)
        return rows.round >= number

    def _restart(self) -> None:
        self.engine.restart(self.now_ms)
        self.model.restart(self.now_ms)
        self.is_settled = False


def _said(reply) -> tuple:
    return (reply.request_id or "", reply.consumer_id or "", reply.error or "")


def _counts(replies: list, asked: set[str]) -> dict[str, str]:
    """What was answered to those requests."""
    return {reply.request_id: reply.text for reply in replies if reply.request_id in asked}


def same(what: str, found, expected) -> None:
    if found != expected:
        raise AssertionError(f"{what}: {found} instead of {expected}")
