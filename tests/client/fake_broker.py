"""A broker for the client's tests: follows ``requests``, commits rounds by hand, knows Exclusive and Shared and little
else.

Positions are handled one by one in dicts. It runs in a thread of the test's process, needs no Spark, and answers within
milliseconds. A test may drop a consumer as if its lease had ended, refuse requests of a kind, or hold the rounds back
for a while. Entries given back above the limit of a dead letter policy are only noted, in ``dead``.
"""

import threading
import time
import uuid

from pulsar_spark.protocol.ack_set import count, full, indexes, intersect
from pulsar_spark.protocol.letters import ReconsumeLater, reconsume_later_of
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.lease import LEASE_SECONDS, BundleLease
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.tables import AppendTable, read_file
from pulsar_spark.storage.topics import Topic, prepare_root, read_topic, resolve_topic
from pulsar_spark.table_specs import CURSOR_LEDGER, LEDGERS, MESSAGES, REQUESTS
from tests.client.waiting import eventually


class Refused(Exception):
    """Class name and words of a refusal."""


class Cursor:
    def __init__(self, topic: Topic, partition: int, subscription: str, start: int):
        self.topic, self.partition, self.subscription = topic, partition, subscription
        self.type: str | None = None
        self.permits: dict[str, int] = {}
        self.read_position = start
        self.first_unacked = start
        self.acked: set[int] = set()
        self.ack_sets: dict[int, tuple[int, ...]] = {}
        self.pending: dict[int, tuple[str, int]] = {}
        self.replay: dict[int, int] = {}
        self.due: dict[int, float] = {}
        self.max_redeliver_count: int | None = None
        self.dead: list[int] = []
        self.turn = 0

    def key(self, **columns) -> dict:
        return dict(
            columns,
            topic=str(self.topic.name),
            topic_id=self.topic.topic_id,
            partition=self.partition,
            subscription=self.subscription,
        )

    def acknowledge(self, position: int) -> None:
        if position >= self.first_unacked:
            self.acked.add(position)
        self.pending.pop(position, None)
        self.replay.pop(position, None)
        self.ack_sets.pop(position, None)
        while self.first_unacked in self.acked:
            self.acked.discard(self.first_unacked)
            self.first_unacked += 1

    def give_back(self, consumer_id: str, positions=None, is_counted: bool = True) -> None:
        for position in [
            p
            for p, (holder, _) in self.pending.items()
            if holder == consumer_id and (positions is None or p in positions)
        ]:
            self.replay[position] = self.pending.pop(position)[1] + is_counted
            if self.max_redeliver_count is not None and self.replay[position] > self.max_redeliver_count:
                self.dead.append(position)
                self.acknowledge(position)

    def give_back_due(self, now: float) -> None:
        due = {position for position, due in self.due.items() if due <= now}
        self.due = {position: due for position, due in self.due.items() if due > now}
        holders = {self.pending[position][0] for position in due if position in self.pending}
        for consumer_id in holders:
            self.give_back(consumer_id, due)
            if self.type == "Exclusive":
                self.give_back(consumer_id, is_counted=False)

    def move(self, position: int) -> None:
        self.acked.clear(), self.ack_sets.clear(), self.pending.clear(), self.replay.clear()
        self.due = {}
        self.read_position = self.first_unacked = position


class FakeBroker:
    """``with FakeBroker(root) as broker``; rounds run until the end of the block."""

    def __init__(self, root):
        self.layout = Layout(root)
        prepare_root(self.layout)
        self.requests: list[dict] = []
        self.cursors: dict[tuple[str, int, str], Cursor] = {}
        self._topics: dict[str, Topic] = {}
        self._numbered: dict[str, int] = {}
        self._publish_ids: set[str] = set()
        self._ends: dict[tuple[str, int], int] = {}
        self._batch_sizes: dict[tuple[str, int], list[int]] = {}
        self._files: dict[tuple[str, int], list[tuple[str, int]]] = {}
        self._tables = {
            spec.name: AppendTable(self.layout.broker_table(spec.name)) for spec in (CURSOR_LEDGER, LEDGERS)
        }
        self._log = TableLog(self.layout.broker_table("requests"))
        self._seen = 0
        self._round = 0
        self._dropped: list[tuple[str, str]] = []
        self._refused: dict[str, str] = {}
        self._stop = threading.Event()
        self.held = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.lease = BundleLease(self.layout, f"fake-{uuid.uuid4().hex[:8]}")
        self._renew_at = 0.0

    def __enter__(self) -> "FakeBroker":
        self.lease.take()
        self._thread.start()
        return self

    def __exit__(self, *failure) -> None:
        self._stop.set()
        self._thread.join()
        self.lease.let_go()

    def asked(self, kind: str) -> list[dict]:
        """The requests of a kind that are committed now."""
        latest = self._log.latest()
        eventually(lambda: self._seen >= latest)
        return [request for request in list(self.requests) if request["kind"] == kind]

    def drop(self, consumer_id: str, text: str = "lease ended") -> None:
        """Let go of a consumer in the next round."""
        self._dropped.append((consumer_id, text))

    def refuse(self, kind: str, error: str) -> None:
        """Refuse requests of a kind from now on."""
        self._refused[kind] = error

    def _run(self) -> None:
        while not self._stop.wait(0.003):
            if time.monotonic() >= self._renew_at:
                self._renew_at = time.monotonic() + LEASE_SECONDS / 4
                self.lease.take()
            with self.held:
                self._step()

    def _step(self) -> None:
        facts: list[dict] = []
        dropped, self._dropped = self._dropped, []
        for consumer_id, text in dropped:
            for cursor in self.cursors.values():
                self._leave(cursor, consumer_id, facts, text)
        for commit in self._log.commits(after=self._seen):
            for request in read_file(
                self.layout.broker_table("requests"), commit.added[0], REQUESTS.schema
            ).to_pylist():
                self.requests.append(request)
                self._take(request, dict(request["properties"] or ()), facts)
            self._seen = commit.version
        self._number()
        for cursor in self.cursors.values():
            facts += self._dispatch(cursor)
        if facts:
            self._round += 1
            facts.append(dict(kind="round", requests_version=self._seen))
            self._tables["cursor_ledger"].append(CURSOR_LEDGER.rows([dict(fact, round=self._round) for fact in facts]))

    def _take(self, request: dict, properties: dict[str, str], facts: list[dict]) -> None:
        kind, error, text = request["kind"], None, None
        key = request["topic"], request["partition"], request["subscription"]
        if request["topic"] and request["topic"] not in self._topics:
            self._topics[request["topic"]] = read_topic(self.layout, request["topic"])
        self._number()
        try:
            if kind in self._refused:
                raise Refused(self._refused[kind], "the test says so")
            handler = getattr(self, f"_{kind}", None)
            if handler is not None:
                handler(self.cursors.get(key), request, properties, facts)
        except Refused as refused:
            error, text = refused.args
        if (
            kind in ("subscribe", "seek", "unsubscribe", "close", "create_subscription")
            or properties.get("receipt") == "true"
        ):
            facts.append(
                dict(
                    kind="reply",
                    request_id=request["request_id"],
                    consumer_id=request["consumer_id"],
                    topic=key[0],
                    partition=key[1],
                    subscription=key[2],
                    error=error,
                    text=text,
                )
            )

    def _subscribe(self, cursor, request, properties, facts) -> None:
        key = request["topic"], request["partition"], request["subscription"]
        if cursor is None:
            start = self._ends.get(key[:2], 0) if properties["initial_position"] == "Latest" else 0
            cursor = self.cursors[key] = Cursor(self._topics[key[0]], key[1], key[2], start)
        if cursor.permits and (cursor.type == "Exclusive" or properties["subscription_type"] != cursor.type):
            raise Refused("ConsumerBusy", f"subscription {key[2]!r} has a consumer")
        cursor.type = properties["subscription_type"]
        cursor.permits[request["consumer_id"]] = 0
        if "max_redeliver_count" in properties:
            cursor.max_redeliver_count = int(properties["max_redeliver_count"])

    def _create_subscription(self, cursor, request, properties, facts) -> None:
        if cursor is not None:
            raise Refused("NotAllowedError", "it exists")
        key = request["topic"], request["partition"], request["subscription"]
        self.cursors[key] = Cursor(
            self._topics[key[0]],
            key[1],
            key[2],
            0 if properties["initial_position"] == "Earliest" else self._ends.get(key[:2], 0),
        )

    def _flow(self, cursor, request, properties, facts) -> None:
        if cursor is not None and request["consumer_id"] in cursor.permits:
            cursor.permits[request["consumer_id"]] += request["permits"]

    def _ack(self, cursor, request, properties, facts) -> None:
        first, last = request["first"], request["last"]
        if request["ack_set"] is not None:
            kept = cursor.ack_sets.get(first, full(self._batch_size(cursor, first)))
            cursor.ack_sets[first] = intersect(kept, request["ack_set"])
            if cursor.ack_sets[first]:
                return
        for position in range(first, last + 1):
            cursor.acknowledge(position)

    def _cumulative_ack(self, cursor, request, properties, facts) -> None:
        last = request["last"]
        if request["ack_set"] is not None:
            cursor.ack_sets[last] = tuple(request["ack_set"])
            last -= 1
        for position in range(cursor.first_unacked, last + 1):
            cursor.acknowledge(position)

    def _reconsume_later(self, cursor, request, properties, facts) -> None:
        asked, position = reconsume_later_of(properties), request["last"]
        kept = cursor.ack_sets.get(position, full(self._batch_size(cursor, position)))
        if (
            position >= cursor.first_unacked
            and position not in cursor.acked
            and (asked.batch_index or 0) in indexes(kept)
        ):
            self._write_letter(cursor, position, asked)
        (self._cumulative_ack if asked.is_cumulative else self._ack)(cursor, request, properties, facts)

    def _write_letter(self, cursor: Cursor, position: int, asked: ReconsumeLater) -> None:
        path, entry_id = self._files[str(cursor.topic.name), cursor.partition][position]
        (row,) = (
            row
            for row in read_file(cursor.topic.path, path, MESSAGES.schema).to_pylist()
            if (row["entry_id"], row["batch_index"]) == (entry_id, asked.batch_index)
        )
        topic, partitions = resolve_topic(self.layout, asked.letter_topic, create=True)
        own = dict(
            publish_id=uuid.uuid4().hex,
            entry_id=0,
            batch_index=None,
            batch_size=1,
            partition=partitions[0],
            properties=list(asked.properties.items()),
            publish_time=time.time_ns() // 1000,
            deliver_at_time=asked.deliver_at_ms and asked.deliver_at_ms * 1000,
            producer_name=asked.producer_name,
        )
        AppendTable(topic.path).append(MESSAGES.rows([row | own]))
        if asked.initial_subscription_name:
            self._topics[str(topic.name)] = topic
            key = str(topic.name), partitions[0], asked.initial_subscription_name
            self.cursors.setdefault(key, Cursor(topic, partitions[0], asked.initial_subscription_name, 0))

    def _negative_ack(self, cursor, request, properties, facts) -> None:
        due = time.monotonic() + (request["delay_ms"] or 0) / 1000
        cursor.due.update(
            {position: due for position in range(request["first"], request["last"] + 1) if position in cursor.pending}
        )

    def _redeliver_all(self, cursor, request, properties, facts) -> None:
        cursor.give_back(request["consumer_id"])

    def _seek(self, cursor, request, properties, facts) -> None:
        if cursor is None:
            raise Refused("SubscriptionNotFound", "no such subscription")
        end = self._ends.get((request["topic"], request["partition"]), 0)
        wanted = properties.get("position")
        cursor.move(
            {"earliest": 0, "latest": end}.get(wanted) if wanted in ("earliest", "latest") else min(int(wanted), end)
        )
        for consumer_id in cursor.permits:
            cursor.permits[consumer_id] = 0
            facts.append(cursor.key(kind="reply", consumer_id=consumer_id, text="reset"))

    def _unsubscribe(self, cursor, request, properties, facts) -> None:
        if len(cursor.permits) > 1:
            raise Refused("ConsumerBusy", "others are connected")
        del self.cursors[request["topic"], request["partition"], request["subscription"]]

    def _close(self, cursor, request, properties, facts) -> None:
        if cursor is not None:
            self._leave(cursor, request["consumer_id"], facts, "closed")

    def _leave(self, cursor: Cursor, consumer_id: str, facts: list[dict], text: str) -> None:
        if consumer_id in cursor.permits:
            del cursor.permits[consumer_id]
            cursor.give_back(consumer_id, is_counted=False)
            facts.append(cursor.key(kind="consumer", consumer_id=consumer_id, is_removed=True, text=text))

    def _batch_size(self, cursor: Cursor, position: int) -> int:
        return self._batch_sizes[str(cursor.topic.name), cursor.partition][position]

    def _number(self) -> None:
        rows = []
        for name, topic in self._topics.items():
            for commit in TableLog(topic.path).commits(after=self._numbered.get(name, 0)):
                self._numbered[name] = commit.version
                publish_ids = {file.min_values["publish_id"] for file in commit.added}
                if not publish_ids & self._publish_ids:
                    rows += [row for file in commit.added for row in self._runs(name, topic, commit.version, file)]
                self._publish_ids |= publish_ids
        if rows:
            self._tables["ledgers"].append(LEDGERS.rows(rows))

    def _runs(self, name: str, topic: Topic, version: int, file) -> list[dict]:
        partition = int(file.partition_values.get("partition", -1))
        found = read_file(topic.path, file, MESSAGES.schema, ["publish_id", "entry_id", "batch_size"]).to_pydict()
        sizes = dict(zip(found["entry_id"], found["batch_size"]))
        runs: list[dict] = []
        for entry_id, batch_size in sorted(sizes.items()):
            position = self._ends.get((name, partition), 0)
            self._ends[name, partition] = position + 1
            self._batch_sizes.setdefault((name, partition), []).append(batch_size)
            self._files.setdefault((name, partition), []).append((file.path, entry_id))
            if runs and runs[-1]["batch_size"] == batch_size:
                runs[-1]["entries"] += 1
            else:
                runs.append(
                    dict(
                        topic=name,
                        topic_id=topic.topic_id,
                        partition=partition,
                        ledger_id=version,
                        publish_id=found["publish_id"][0],
                        first_entry_id=entry_id,
                        first_position=position,
                        entries=1,
                        batch_size=batch_size,
                        path=file.path,
                    )
                )
        return runs

    def _dispatch(self, cursor: Cursor) -> list[dict]:
        cursor.give_back_due(time.monotonic())
        ranges: list[dict] = []
        end = self._ends.get((str(cursor.topic.name), cursor.partition), 0)
        while ready := [consumer_id for consumer_id, permits in cursor.permits.items() if permits > 0]:
            if cursor.replay:
                position = min(cursor.replay)
                redelivered = cursor.replay.pop(position)
            elif cursor.read_position < end:
                position, redelivered = cursor.read_position, 0
                cursor.read_position += 1
                if position in cursor.acked:
                    continue
            else:
                break
            self._deliver(cursor, ready[cursor.turn % len(ready)], position, redelivered, ranges)
            cursor.turn += 1
        return ranges

    def _deliver(self, cursor: Cursor, consumer_id: str, position: int, redelivered: int, ranges: list[dict]) -> None:
        batch_size, ack_set = self._batch_size(cursor, position), cursor.ack_sets.get(position)
        cursor.permits[consumer_id] -= batch_size if ack_set is None else count(ack_set)
        cursor.pending[position] = consumer_id, redelivered
        row = cursor.key(
            kind="range",
            status="pending",
            consumer_id=consumer_id,
            delivery_round=self._round + 1,
            redelivery_count=redelivered,
            batch_size=batch_size,
            ack_set=None if ack_set is None else list(ack_set),
            first=position,
            last=position,
        )
        last = ranges[-1] if ranges else None
        if (
            last
            and ack_set is None
            and last["ack_set"] is None
            and last["last"] == position - 1
            and all(last[name] == row[name] for name in ("consumer_id", "redelivery_count", "batch_size"))
        ):
            last["last"] = position
        else:
            ranges.append(row)
