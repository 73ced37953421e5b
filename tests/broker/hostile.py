"""A root with a healthy topic and subscription, and whatever is done to it beside them: requests as rows of the table,
and files.

The healthy subscription is the measure: what is published on its topic is delivered once and acknowledged, whatever
else is asked, before and after a restart.
"""

from pathlib import Path

import pyarrow as pa

from pulsar_spark.admin import Admin
from pulsar_spark.broker.requests.reading import read_request_batch
from pulsar_spark.protocol.acknowledgement.cursor import PENDING
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.cursor_ledger.set_aside import SetAside
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.table_specs import REQUESTS
from tests.support.requests import On, request
from tests.support.spark_engine import new_engine

HEALTHY, SICK = "persistent://public/default/healthy", "persistent://public/default/sick"
WELL, ILL = On(HEALTHY, subscription="well"), On(SICK, subscription="ill")
SECOND = 1000


class HostileRoot:
    """Rounds on requests that are read from the table, as a running broker reads them. Time stands still unless a test
    moves ``now_ms``."""

    def __init__(self, root: Path, planner=None):
        self._open(root, planner)
        for topic in (HEALTHY, SICK):
            self.engine.create_topic(topic)
        self.restart()
        self.ask(
            *(
                row
                for on in (WELL, ILL)
                for row in (
                    on.subscribe("c", lease_ms=86_400_000, client=f"client-{on.where['topic']}"),
                    on.flow("c", 1000),
                )
            )
        )
        self.engine.publish(SICK, -1, [1, 3, 1, 1])
        self.serve()

    @classmethod
    def on_copy(cls, root: Path) -> "HostileRoot":
        """On a copy of the root of another."""
        found = cls.__new__(cls)
        found._open(root, None)
        for topic in (HEALTHY, SICK):
            path = found.layout.topic(parse_topic_name(topic))
            found.engine.topic_ids[topic] = read_topic(found.layout, topic).topic_id
            found.engine.tables[topic] = AppendTable(path)
        found.engine.published = 100
        found.restart()
        return found

    def _open(self, root: Path, planner) -> None:
        self.engine = new_engine(None, root)
        self.engine.planner = planner or self.engine.planner
        self.layout, self.requests = self.engine.layout, self.engine.layout.broker_table("requests")

    @property
    def rounds(self):
        return self.engine.rounds

    def write(self, *rows: dict) -> int:
        """Append rows to ``requests`` without serving them; the version."""
        return AppendTable(self.requests).append(
            REQUESTS.rows([row | {"properties": list((row.get("properties") or {}).items())} for row in rows])
        )

    def write_table(self, rows: pa.Table) -> int:
        return AppendTable(self.requests).append(rows)

    def serve(self, rounds: int = 2) -> list:
        """Run rounds on what is there; the replies."""
        replies = []
        for _ in range(rounds):
            self.rounds.run(*read_request_batch(self.requests, after=self.rounds.bundle.requests_version))
            replies += self.engine.committed()["replies"]
        return replies

    def ask(self, *rows: dict) -> list:
        """(error, text) of the reply to each row, None for one without."""
        self.write(*rows)
        replies = {reply.request_id: (reply.error, reply.text) for reply in self.serve()}
        return [replies.get(row.get("request_id")) for row in rows]

    def restart(self) -> None:
        self.engine.restart(self.engine.now_ms)
        self.engine.committed()

    def flows(self, entries: int = 3) -> None:
        """The healthy subscription works: each of some new messages is delivered once, and acknowledged."""
        wanted = self.engine.publish(HEALTHY, -1, [1] * entries)
        self.write(WELL.flow("c", entries))
        self.rounds.run(*read_request_batch(self.requests, after=self.rounds.bundle.requests_version))
        (key,) = (key for key in self.rounds.bundle.cursors if key.subscription == "well")
        held = [
            position
            for each in self.rounds.bundle.cursors[key].ranges()
            if each.status == PENDING
            for position in range(each.first, each.last + 1)
        ]
        assert held == wanted, "each message is delivered, once"
        self.write(*(WELL.ack(position) for position in held))
        self.serve(1)
        cursor = self.rounds.bundle.cursors[key]
        assert cursor.mark_delete == wanted[-1] and not list(cursor.ranges())

    def holds(self) -> None:
        """Everything goes on: the healthy subscription, every reader, and both after a restart."""
        self.flows()
        self.restart()
        self.flows()
        self.reads()

    def reads(self) -> None:
        """What people ask of a root is answered."""
        latest = read_latest(self.layout)
        version = TableLog(self.layout.broker_table("cursor_ledger")).latest()
        assert (latest.round, latest.version) == (self.rounds.bundle.round, version)
        admin = Admin(f"delta:{self.layout.root}", timeout_seconds=0)
        assert admin.stats(HEALTHY)["subscriptions"]["well"]["msgBacklog"] == 0
        assert HEALTHY in admin.topics("public/default")
        assert isinstance(admin.get_policies(HEALTHY), dict) and isinstance(admin.set_aside(), list)

    @property
    def aside(self) -> dict[str, SetAside]:
        """What is set aside, as readers see it and the broker does."""
        found = read_latest(self.layout).set_aside
        assert found.keys() == self.rounds.bundle.set_aside.keys()
        return found


def commit_file(table: Path, version: int) -> Path:
    return TableLog(table).file(version)


def data_files(table: Path, version: int) -> list[Path]:
    return [table / file.path for file in TableLog(table).commit(version).added]


__all__ = ["HEALTHY", "ILL", "SECOND", "SICK", "WELL", "HostileRoot", "commit_file", "data_files", "request"]
