"""What a fuzzer does to a root (see test_fuzz): rows that are nearly right, and files that are damaged. Nothing here
touches the healthy subscription."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from pulsar_spark.protocol.policies.policies import POLICIES
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.table_specs import REQUESTS
from tests.broker.hostile import ILL, SICK, HostileRoot, commit_file
from tests.support.requests import On, keep_alive, request

OTHER = On(SICK, subscription="other")
KEYED = On(SICK, subscription="keyed")
NUMBERS = st.sampled_from(
    [None, -1, 0, 1, 2, 3, 4, 63, 2**31 - 1, 2**31, 3 * 10**14, 10**15, 10**18, 2**63 - 1, -(2**63)]
) | st.integers(-5, 8)
SMALL = st.sampled_from([None, -(2**31), -2, -1, 0, 1, 2**31 - 1])
TEXTS = st.sampled_from(
    [
        None,
        "",
        " ",
        ".",
        "..",
        "../up",
        "a/b",
        "a" * 201,
        "a" * 5000,
        "\x00",
        "line\nline",
        "\U0001f600",
        "ü" * 150,
        "sick",
        "public/default/sick",
        "x-partition-0",
        "sick-partition-0",
        "persistent://public/default/none",
        "non-persistent://a/b/c",
        "persistent://",
        "%s{0}'\";--",
        "null",
        "0",
        "-1",
        "9" * 19,
        "9" * 5000,
        "1e9",
        "٣",
        "true",
        "Exclusive",
        "Failover",
        "Shared",
        "KeyShared",
        "AUTO_SPLIT",
        "STICKY",
        "0-9",
        "9-0",
        "-1-5",
        "0-2147483647",
        "0-2147483648",
        "0-9,5-20",
        ",",
        "0-1," * 70_000,
        "Earliest",
        "latest",
        "c",
        "ill",
        "other",
    ]
) | st.text(max_size=8)
ACK_SETS = (
    st.none()
    | st.lists(st.sampled_from([None, 0, 1, 5, 7, -1, 2**63 - 1, -(2**63)]), max_size=4)
    | st.just([-1] * 3000)
)
PROPERTIES = (
    "subscription_type",
    "initial_position",
    "priority_level",
    "lease_ms",
    "consumer_name",
    "max_redeliver_count",
    "dead_letter_topic",
    "initial_subscription_name",
    "max_unacked_messages",
    "receipt",
    "valid_until_ms",
    "position",
    "publish_time_ms",
    "messages",
    "seconds",
    "force",
    "name",
    "value",
    "letter_topic",
    "batch_index",
    "deliver_at_ms",
    "is_cumulative",
    "is_dead",
    "property.x",
    "producer_name",
    "id",
    "all",
    "odd",
    "key_shared_mode",
    "allow_out_of_order_delivery",
    "hash_ranges",
    "key_shared_name_index",
    "key_shared_lost_points",
)
COLUMNS = {
    "request_id": TEXTS,
    "kind": TEXTS,
    "client_id": TEXTS,
    "consumer_id": TEXTS,
    "topic": TEXTS,
    "partition": SMALL,
    "subscription": TEXTS,
    "first": NUMBERS,
    "last": NUMBERS,
    "ack_set": ACK_SETS,
    "permits": NUMBERS,
    "delay_ms": NUMBERS,
}
GOOD = (
    lambda number: ILL.subscribe("d", lease_ms=1000),
    lambda number: OTHER.subscribe("e", "Exclusive"),
    lambda number: KEYED.subscribe(f"k{number}", "KeyShared", lease_ms=1000),
    lambda number: KEYED.subscribe(f"k{number}", "KeyShared", key_shared_mode="STICKY", hash_ranges=f"{number}-9"),
    lambda number: KEYED.close(f"k{number}"),
    lambda number: KEYED.flow(f"k{number}", number),
    lambda number: ILL.flow("c", number),
    lambda number: ILL.ack(number),
    lambda number: ILL.ack(1, ack_set=[number]),
    lambda number: OTHER.cumulative_ack(number),
    lambda number: ILL.negative_ack("c", number),
    lambda number: ILL.negative_ack("c", 0, 3, delay_ms=number),
    lambda number: ILL.reconsume_later(number, consumer="c"),
    lambda number: ILL.redeliver_all("c"),
    lambda number: ILL.seek(number),
    lambda number: ILL.seek(publish_time_ms=number),
    lambda number: ILL.unsubscribe(force=True),
    lambda number: OTHER.create_subscription("Earliest"),
    lambda number: ILL.skip(number),
    lambda number: ILL.clear_backlog(),
    lambda number: ILL.expire(number),
    lambda number: keep_alive("c"),
    lambda number: request("close", client="d@client"),
    lambda number: request("unload", topic=SICK, partition=-1),
    lambda number: request("retry_set_aside", properties={"all": "true"}),
    lambda number: request("drop_set_aside", properties={"all": "true"}),
    *(lambda number, name=name: ILL.policy(name, number) for name in POLICIES if name != "backlog_quota_policy"),
)


@st.composite
def rows(draw) -> dict:
    """A row that a client would write, with up to three columns or properties as none would."""
    row = draw(st.sampled_from(GOOD))(draw(st.integers(0, 5)))
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            column = draw(st.sampled_from(sorted(COLUMNS)))
            row[column] = draw(COLUMNS[column])
        else:
            named = dict(row.get("properties") or {})
            value = draw(TEXTS | st.integers(-5, 10**15).map(str))
            row["properties"] = named | {draw(st.sampled_from(PROPERTIES)): value}
    return row


CONTENTS = (
    b"",
    b"5\n",
    b"{}\n",
    b"[]\n",
    b"null\n",
    b"{",
    b"\xff\xfe\x00",
    b'{"add": 5}\n',
    b'{"add": {}}\n',
    b'{"add": {"path": "x", "size": "y", "stats": 5}}\n',
    b'{"txn": []}\n',
    b'{"commitInfo": "x"}\n',
    b'{"metaData": 5}\n',
    b'{"protocol": []}\n',
    b'{"remove": 1}\n',
    b'{"txn": {"appId": "trimmed/x"}}\n',
    b'{"add": {"path": "../../x", "size": 1, "stats": "{\\"numRecords\\": 1}"}}\n',
    b"PAR1" + b"\0" * 40 + b"PAR1",
)
STATISTICS = (
    5,
    "x",
    None,
    [],
    "{}",
    '{"numRecords": "many"}',
    '{"numRecords": -1, "minValues": 5}',
    '{"numRecords": 1, "minValues": {"entry_id": "a", "publish_id": 5, "batch_size": null}, '
    '"maxValues": {"entry_id": "b", "publish_id": 5}}',
    '{"numRecords": 1, "minValues": {"entry_id": 7, "publish_id": "p", "batch_size": 1}, '
    '"maxValues": {"entry_id": 3, "publish_id": "p", "batch_size": 9999999999}, "nullCount": 1}',
)


class Damage(NamedTuple):
    """What is done to one file: cut to a share of it, replaced, deleted, made a folder, or given other statistics or
    columns."""

    how: str
    share: float = 0.5
    content: bytes = b""
    statistics: object = None

    def to(self, file: Path) -> None:
        if self.how == "cut":
            whole = file.read_bytes()
            file.write_bytes(whole[: int(len(whole) * self.share)])
        elif self.how == "replaced":
            file.write_bytes(self.content)
        elif self.how == "deleted":
            file.unlink()
        elif self.how == "a folder":
            file.unlink()
            file.mkdir()
        elif self.how == "columns" and file.suffix == ".parquet":
            rows = pq.ParquetFile(file).read()
            kept = rows.select(rows.schema.names[::2]).append_column("foreign", pa.array(["x"] * rows.num_rows))
            as_text = pa.array(["no number"] * rows.num_rows)
            pq.write_table(
                kept.append_column(
                    "first" if "first" in rows.schema.names and "first" not in kept.schema.names else "entry_id",
                    as_text,
                ),
                file,
            )
        elif self.how == "statistics" and file.suffix == ".json":
            actions = [json.loads(line) for line in file.read_text().splitlines()]
            for action in actions:
                if "add" in action:
                    action["add"]["stats"] = self.statistics
            file.write_text("\n".join(map(json.dumps, actions)) + "\n")


damages = st.builds(
    Damage,
    st.sampled_from(["cut", "replaced", "deleted", "a folder", "columns", "statistics"]),
    st.floats(0, 0.99),
    st.sampled_from(CONTENTS) | st.binary(max_size=60),
    st.sampled_from(STATISTICS),
)


class Rows(NamedTuple):
    """A commit of rows; with ``damage`` its log file or its data file is damaged before the broker sees it."""

    rows: list[dict]
    damage: Damage | None = None
    is_log: bool = True

    def on(self, root: HostileRoot) -> None:
        version = root.write(*self.rows)
        if self.damage:
            _damage(root.requests, version, self.damage, self.is_log)


class Publish(NamedTuple):
    """A publish to the sick topic, likewise."""

    deliver_at_ms: int | None
    damage: Damage | None
    is_log: bool

    def on(self, root: HostileRoot) -> None:
        known = root.rounds.bundle.topics.get(SICK)
        topic = known and known.topic.path
        if topic is None or not (topic / "_delta_log").is_dir():
            return
        try:
            root.engine.publish(SICK, -1, [1, 2], deliver_at_ms=[self.deliver_at_ms] * 2)
        except Exception:  # a producer on a topic that was broken before: not what is tested here
            return
        if self.damage:
            _damage(topic, TableLog(topic).latest(), self.damage, self.is_log)


class Beside(NamedTuple):
    """Something foreign in the folder of the topics, or in the place of the sick one's log."""

    name: str
    content: bytes

    def on(self, root: HostileRoot) -> None:
        folder = root.layout.root / "public" / "default"
        log = folder / self.name / "_delta_log"
        if self.name == "file":
            (folder / "file").write_bytes(self.content)
            return
        if self.name == "gone":
            shutil.rmtree(folder / "sick", ignore_errors=True)
            return
        log.mkdir(parents=True, exist_ok=True)
        file = log / f"{0:020d}.json"
        fresh = log / ".fresh"
        fresh.write_bytes(self.content)
        fresh.replace(file) if not file.is_dir() else None
        (folder / ".touched").touch()


class Restart(NamedTuple):
    def on(self, root: HostileRoot) -> None:
        root.restart()


class Later(NamedTuple):
    seconds: int

    def on(self, root: HostileRoot) -> None:
        root.engine.now_ms += 1000 * self.seconds


def _damage(table: Path, version: int, damage: Damage, is_log: bool) -> None:
    log = commit_file(table, version)
    if not log.is_file():
        return
    if is_log:
        damage.to(log)
        return
    for line in log.read_text().splitlines():
        add = json.loads(line).get("add")
        if add and (table / add["path"]).is_file():
            damage.to(table / add["path"])


maybe_damaged = st.none() | damages
steps = st.one_of(
    st.builds(Rows, st.lists(rows(), min_size=1, max_size=4)),
    st.builds(Rows, st.lists(rows(), min_size=1, max_size=3), damages, st.booleans()),
    st.builds(Publish, st.none() | st.sampled_from([1, 5000, 10**12]), maybe_damaged, st.booleans()),
    st.builds(Beside, st.sampled_from(["foreign", "sick", "file", "gone", "_zz"]), st.sampled_from(CONTENTS)),
    st.builds(Restart),
    st.builds(Later, st.sampled_from([1, 60, 3600])),
)
cases = st.lists(steps, min_size=1, max_size=4)


assert set(COLUMNS) | {"properties", "request_time"} == set(REQUESTS.schema.names)
