"""Bringing a root of the first release up: whole, twice, cut off at every write, on a disk that refuses, beside clients
that have it open, and with topics that cannot be brought up."""

import errno
import itertools
import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, Schema

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.admin.upkeep import optimize, trim
from pulsar_spark.errors import BrokerFenced, NewerLayout, NotAllowedError, OlderLayout
from pulsar_spark.link.request_writer import RequestWriter
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta import definitions
from pulsar_spark.storage.delta.checkpoints import make_checkpoint
from pulsar_spark.storage.delta.definitions import read_definition
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.repair import migrations
from pulsar_spark.storage.repair.examination import tables_of
from pulsar_spark.storage.repair.migrations import Changed, is_behind, migrate_at_start, migrate_root
from pulsar_spark.storage.repair.repair import repair_root
from pulsar_spark.storage.topics import topics
from pulsar_spark.storage.topics.topics import create_topic, layout_version, prepare_root, read_topic
from pulsar_spark.storage.upkeep import shortening
from pulsar_spark.storage.upkeep.retention import FILES_PROPERTY, tell_promise
from pulsar_spark.storage.upkeep.shortening import shorten
from pulsar_spark.table_specs import BROKER_TABLES, CURSOR_LEDGER, LEDGERS, MESSAGES, REQUESTS, TABLES, TableSpec
from tests.support.faults import FULL, READ_ONLY, faults
from tests.support.first_release import ORDERS, TOPICS, admitted_by_first_release, unpack
from tests.support.spark_engine import SparkEngine

OF_MESSAGES = tuple(column.name for column in MESSAGES.columns if column.since == 2)
OF_CURSOR_LEDGER = tuple(column.name for column in CURSOR_LEDGER.columns if column.since == 2)
OF_LEDGERS = tuple(column.name for column in LEDGERS.columns if column.since == 2)
OURS = {threading.main_thread().name}
"""Threads that a test before left behind write, too."""
CHANGES = (
    *(Changed(topic, 2, OF_MESSAGES) for topic in TOPICS),
    Changed("requests", 2, ()),
    Changed("ledgers", 2, OF_LEDGERS),
    Changed("cursor_ledger", 2, OF_CURSOR_LEDGER),
)


@pytest.fixture
def layout(tmp_path):
    return unpack(tmp_path)


def columns_of(schema: Schema) -> list[tuple]:
    """Names and types, as Delta has them."""
    return [(field["name"], field["type"]) for field in json.loads(schema.to_json())["fields"]]


def stored(path: Path) -> list[tuple]:
    return columns_of(DeltaTable(str(path)).schema())


def specified(spec: TableSpec, version: int = 2) -> list[tuple]:
    return columns_of(Schema.from_arrow(spec.schema_at(version)))


def rows_of(layout) -> dict[str, list]:
    """Every row of every table, in the columns of the first layout."""
    specs = {spec.name: spec for spec in TABLES}
    found = {}
    for name, path, topic in tables_of(layout):
        columns = (MESSAGES if topic else specs[name]).schema_at(1).names
        found[name] = sorted(dataset_of(path).to_table(columns=columns).to_pylist(), key=str)
    return found


def description_of(path: Path) -> int:
    return json.loads(DeltaTable(str(path)).metadata().description)["layout_version"]


def assert_brought_up(layout, rows) -> None:
    assert layout_version(layout) == 2 and not is_behind(layout)
    assert admitted_by_first_release(layout) == {2}
    specs = {spec.name: spec for spec in TABLES}
    for name, path, topic in tables_of(layout):
        spec = MESSAGES if topic else specs[name]
        assert stored(path) == specified(spec), name
        assert description_of(path) == 2, name
    assert rows_of(layout) == rows


def test_the_tables_of_today_are_those_of_the_first_release_and_all_migrations(layout):
    """Also the order of columns; a column that is added to a spec without a migration is found out here."""
    for name, path, topic in tables_of(layout):
        spec = MESSAGES if topic else next(spec for spec in TABLES if spec.name == name)
        assert stored(path) == specified(spec, 1), name
    migrate_root(layout)
    for name, path, topic in tables_of(layout):
        spec = MESSAGES if topic else next(spec for spec in TABLES if spec.name == name)
        assert stored(path) == specified(spec), name
    made = create_topic(layout, "made-now")
    assert stored(made.path) == specified(MESSAGES)


def test_tables_that_were_told_how_long_files_stay_are_brought_up_as_others_and_stay_told(layout):
    """Before they are, and after."""
    rows, own = rows_of(layout), [layout.broker_table(spec.name) for spec in BROKER_TABLES]
    assert tell_promise(own[0], 3600) and description_of(own[0]) == 1
    migrate_root(layout)
    assert [tell_promise(path, 3600) for path in own] == [False, True, True]
    assert_brought_up(layout, rows)
    for path in own:
        assert DeltaTable(str(path)).metadata().configuration[FILES_PROPERTY] == "interval 3600 seconds"


def test_migrations_lead_from_the_first_version_to_todays():
    assert [migration.to for migration in migrations.MIGRATIONS] == list(range(2, definitions.LAYOUT_VERSION + 1))
    assert {column.since for spec in TABLES for column in spec.columns} <= {1, *(m.to for m in migrations.MIGRATIONS)}


def test_a_root_is_brought_up_once(layout):
    rows = rows_of(layout)
    assert layout_version(layout) == 1 and is_behind(layout)
    assert migrate_root(layout) == (1, 2, CHANGES)
    assert_brought_up(layout, rows)
    commits = {path: TableLog(path).latest() for _, path, _ in tables_of(layout)}
    assert migrate_root(layout) == (2, 2, ())
    assert commits == {path: TableLog(path).latest() for _, path, _ in tables_of(layout)}


def test_a_dry_run_says_the_same_and_changes_nothing(layout):
    before = files(layout)
    assert migrate_root(layout, dry_run=True) == (1, 2, CHANGES)
    assert files(layout) == before


def files(layout) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for path in layout.root.rglob("*") if path.is_file() and path.suffix != ".lock"
    }


class Crash(BaseException):
    """The process is gone at this point."""


def writes_of(layout) -> int:
    with faults(first=10**9, threads=OURS) as counted:
        migrate_root(layout)
    return counted.writes


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_cut_off_at_any_write_it_is_old_or_new_and_is_finished_by_the_next(tmp_path, after, monkeypatch):
    monkeypatch.setattr("tests.support.faults.OSError", lambda *_: Crash(), raising=False)
    pristine = unpack(tmp_path / "pristine")
    shutil.copytree(pristine.root.parent, tmp_path / "counted")
    rows, versions = rows_of(pristine), []
    for number in range(1, writes_of(migrations.Layout(tmp_path / "counted" / "root")) + 1):
        shutil.copytree(pristine.root.parent, tmp_path / f"{number}")
        layout = migrations.Layout(tmp_path / f"{number}" / "root")
        with pytest.raises(Crash), faults(first=number, count=10**9, after=after, threads=OURS):
            migrate_root(layout)
        version = layout_version(layout)
        versions.append(version)
        if version == 1:
            assert admitted_by_first_release(layout) == {1}, "the first release serves it on"
        else:
            assert max(admitted_by_first_release(layout)) == 2 and read_latest(layout).round == 4
        migrate_at_start(layout, "next")
        assert_brought_up(layout, rows)
        shutil.rmtree(layout.root)
    assert versions == sorted(versions) and {1, 2} <= {*versions}


@pytest.mark.parametrize("number", [FULL, READ_ONLY])
def test_a_disk_that_refuses_is_named_and_leaves_the_root_as_it_was(layout, number):
    rows = rows_of(layout)
    with (
        faults(number, first=1, count=10**9),
        pytest.raises(OlderLayout, match=f"has layout 1 .*{os.strerror(number)}"),
    ):
        migrate_root(layout)
    assert admitted_by_first_release(layout) == {1} and rows_of(layout) == rows
    migrate_root(layout)
    assert_brought_up(layout, rows)


def test_by_hand_a_disk_that_refuses_is_named_too(layout):
    with faults(READ_ONLY, first=1, count=10**9), pytest.raises(OlderLayout, match=os.strerror(errno.EROFS)):
        Admin(f"delta:{layout.root}").migrate()
    assert layout_version(layout) == 1


def test_only_who_holds_the_lease_migrates(layout):
    assert BundleLease(layout, "serves").take()
    admin = Admin(f"delta:{layout.root}")
    with pytest.raises(NotAllowedError, match="broker 'serves' .*stop it first"):
        admin.migrate()
    assert admin.migrate(dry_run=True)["changes"] and layout_version(layout) == 1
    BundleLease(layout, "serves").let_go()
    assert admin.migrate()["after"] == layout_version(layout) == 2
    assert BundleLease(layout, "another").holder() is None, "it gives the lease back"


def test_one_that_lost_the_lease_stops_and_what_it_did_stands(layout):
    held = itertools.count()

    def hold():
        if next(held) == 2:
            raise pulsar.exceptions.PulsarException("lost")

    with pytest.raises(pulsar.exceptions.PulsarException, match="lost"):
        migrate_root(layout, hold=hold)
    rows = rows_of(layout)
    migrate_root(layout)
    assert_brought_up(layout, rows)


WITH_A_ROOT = {
    "client": lambda admin: pulsar.Client(f"delta:{admin.layout.root}"),
    "list_topics": lambda admin: admin.list_topics("public/default"),
    "create_topic": lambda admin: admin.create_topic("made-now"),
    "delete_topic": lambda admin: admin.delete_topic(ORDERS),
    "mend": lambda admin: admin.mend(ORDERS),
    "describe": lambda admin: admin.describe(ORDERS),
    "stats": lambda admin: admin.stats(ORDERS),
    "peek": lambda admin: admin.peek_messages(ORDERS, "billing", 1),
    "skip_lost": lambda admin: admin.skip_lost(ORDERS, "billing"),
    "set_policy": lambda admin: admin.set_policy("public/default", "message_ttl_seconds", 1),
    "trim": lambda admin: trim(admin.layout, ORDERS, None),
    "optimize": lambda admin: optimize(admin.layout, ORDERS, None),
    "doctor": lambda admin: admin.doctor(),
    "repair": lambda admin: admin.repair(),
    "migrate": lambda admin: admin.migrate(),
    "broker_status": lambda admin: admin.broker_status(),
    "prepare_root": lambda admin: prepare_root(admin.layout),
}


@pytest.mark.parametrize("use", WITH_A_ROOT.values(), ids=WITH_A_ROOT)
def test_a_root_of_a_newer_release_is_refused_whatever_is_asked(layout, use, monkeypatch):
    migrate_root(layout)
    monkeypatch.setattr(definitions, "NEWEST_LAYOUT_VERSION", 1)
    monkeypatch.setattr(topics, "_versions", {})
    before = files(layout)
    with pytest.raises(NewerLayout, match="layout 2, this release reads up to 1: install a newer pulsar_spark"):
        use(Admin(f"delta:{layout.root}"))
    assert files(layout) == before


def test_an_older_release_that_has_it_open_may_not_write_to_the_brokers_tables(layout):
    lives = {spec.name: TableLog(layout.broker_table(spec.name)).life() for spec in BROKER_TABLES}
    lives_of_topics = {name: TableLog(read_topic(layout, name).path).life() for name in TOPICS}
    migrate_root(layout)
    for spec in BROKER_TABLES:
        assert TableLog(layout.broker_table(spec.name)).life() != lives[spec.name], "to it the table is another"
    assert lives_of_topics == {name: TableLog(read_topic(layout, name).path).life() for name in TOPICS}


def test_a_client_of_this_release_works_before_and_goes_on(layout):
    client = pulsar.Client(f"delta:{layout.root}")
    producer, fresh = client.create_producer(ORDERS), client.create_producer("made-before")
    writer = RequestWriter(layout, lambda: True)
    producer.send(b"before")
    version = writer.write([dict(request_id="1")])
    assert read_definition(read_topic(layout, "made-before").path).layout_version == 1, "as the root has them"
    migrate_root(layout)
    last = producer.send(b"after")
    fresh.send(b"after")
    assert writer.write([dict(request_id="2")]) == version + 2, "the migration's commit lies between"
    client.close()
    rows = dataset_of(read_topic(layout, ORDERS).path).to_table(columns=["payload", *OF_MESSAGES]).to_pylist()
    assert {b"before", b"after"} <= {row["payload"] for row in rows}
    assert {row[name] for row in rows for name in OF_MESSAGES} == {None}
    assert last.ledger_id() == 5, "create, two publishes, one before, the migration, one after"


def test_to_a_client_of_this_release_a_newer_root_is_one_by_name(layout, monkeypatch):
    table = AppendTable(layout.broker_table("requests"))
    migrate_root(layout)
    monkeypatch.setattr(definitions, "NEWEST_LAYOUT_VERSION", 1)
    with pytest.raises(NewerLayout, match="install a newer"):
        table.append(REQUESTS.rows([dict(request_id="1")]))
    with pytest.raises(BrokerFenced, match="newer release wrote the root: .*install a newer"):
        table.append_fenced(REQUESTS.rows([dict(request_id="1")]), 1)


def test_a_topic_that_cannot_be_brought_up_is_named_and_the_rest_is(layout, caplog):
    orders, flights = read_topic(layout, ORDERS).path, read_topic(layout, TOPICS[0]).path
    DeltaTable(str(orders)).alter.add_columns([Field("Sticky_Key_Hash", "string"), Field("mine", "string")])
    last = TableLog(flights).file(TableLog(flights).latest())
    text = last.read_bytes()
    last.write_text("5\n")
    migrate_at_start(layout, "b")
    assert not is_behind(layout)
    broken, foreign = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert broken.startswith(f"topic {TOPICS[0]} is not upgraded")
    assert foreign.startswith(f"topic {ORDERS} is not upgraded")
    assert "column 'Sticky_Key_Hash' of type 'string' stands where 'sticky_key_hash' of type 'integer'" in foreign
    last.write_bytes(text)
    [flights_now, orders_now] = migrate_root(layout).changes
    assert flights_now == CHANGES[0] and orders_now.table == ORDERS and orders_now.error


def test_a_topics_own_columns_stay(layout):
    orders = read_topic(layout, ORDERS).path
    DeltaTable(str(orders)).alter.add_columns([Field("mine", "string")])
    configuration = DeltaTable(str(orders)).metadata().configuration
    assert migrate_root(layout).left == []
    assert [name for name, _ in stored(orders)] == [*MESSAGES.schema_at(1).names, "mine", *OF_MESSAGES]
    assert DeltaTable(str(orders)).metadata().configuration == configuration
    assert dataset_of(orders).to_table().num_rows == 32


def test_a_table_whose_first_commit_log_clean_up_has_taken(layout):
    for name in ("cursor_ledger", "requests"):
        path = layout.broker_table(name)
        DeltaTable(str(path)).create_checkpoint()
        TableLog(path).file(0).unlink()
    assert layout_version(layout) == 1
    migrate_root(layout)
    assert layout_version(layout) == 2 and not is_behind(layout)


def test_a_root_whose_logs_begin_later_is_brought_up_in_its_first_commits(layout, monkeypatch):
    monkeypatch.setattr(shortening, "CHOSEN_SECONDS", 0)
    for name in ("cursor_ledger", "requests"):
        path = layout.broker_table(name)
        make_checkpoint(path)
        assert sum(shorten(path, TableLog(path).latest(), time.time() + 1)) > 0
    assert layout_version(layout) == 1
    migrate_root(layout)
    assert layout_version(layout) == 2 and not is_behind(layout)
    assert not TableLog(layout.broker_table("cursor_ledger")).has(0)


def test_doctor_and_the_command_say_where_a_root_is(layout):
    admin = Admin(f"delta:{layout.root}")
    [found] = admin.doctor()
    assert (found["kind"], found["command"]) == ("older_layout", "pulsar-spark migrate")
    assert "layout 1" in found["text"] and "upgrades it to 2" in found["text"]
    done = admin.migrate()
    assert done == {
        "before": 1,
        "after": 2,
        "brought": [{"version": 2, "what": migrations.MIGRATIONS[0].what}],
        "changes": [change._asdict() | {"columns": list(change.columns)} for change in CHANGES],
    }
    assert admin.doctor() == []


def test_a_topic_of_an_older_backup_is_told_of_and_brought_up(layout, tmp_path):
    orders = read_topic(layout, ORDERS).path
    shutil.copytree(orders, tmp_path / "backup")
    migrate_root(layout)
    shutil.rmtree(orders)
    shutil.copytree(tmp_path / "backup", orders)
    admin = Admin(f"delta:{layout.root}")
    [found] = admin.doctor()
    assert (found["kind"], found["table"], found["command"]) == ("older_layout", ORDERS, "pulsar-spark migrate")
    assert admin.migrate()["changes"] == [Changed(ORDERS, 2, OF_MESSAGES)._asdict() | {"columns": list(OF_MESSAGES)}]
    assert admin.doctor() == []


def test_the_first_round_behind_a_migration_is_mended_like_any(layout):
    """Which files are a commit's is told by its round; the migration's commit before it is none."""
    migrate_root(layout)
    engine = SparkEngine(None, layout)
    engine.restart(1_716_000_001_000)
    path = layout.broker_table("cursor_ledger")
    assert TableLog(path).latest() == 6 and read_latest(layout).round == 5
    TableLog(path).file(6).write_text("")
    [mended] = repair_root(layout, "cursor_ledger")
    assert mended.is_done and read_latest(layout).round == 5


def test_two_that_migrate_at_once_make_each_change_once(layout):
    """As where the lease of one ran out while it was suspended."""
    rows, done = rows_of(layout), []
    before = {path: TableLog(path).latest() for _, path, _ in tables_of(layout)}
    both = threading.Barrier(2)

    def migrate():
        both.wait()
        done.append(migrate_root(layout))

    threads = [threading.Thread(target=migrate) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(change for each in done for change in each.changes) == sorted(CHANGES)
    assert {path: TableLog(path).latest() - 1 for _, path, _ in tables_of(layout)} == before
    assert_brought_up(layout, rows)


def test_producers_go_on_meanwhile(layout):
    client, begun = pulsar.Client(f"delta:{layout.root}"), threading.Event()
    producer = client.create_producer(ORDERS)

    def send():
        for number in range(40):
            producer.send(b"%d" % number)
            begun.set()

    sending = threading.Thread(target=send)
    sending.start()
    begun.wait(60)
    migrate_root(layout)
    sending.join()
    client.close()
    payloads = dataset_of(read_topic(layout, ORDERS).path).to_table(columns=["payload"])["payload"].to_pylist()
    assert len(payloads) == 32 + 40 and {b"%d" % number for number in range(40)} <= {*payloads}


def test_checkpoints_of_before_and_after_give_the_new_columns(layout):
    paths = [path for _, path, _ in tables_of(layout)]
    rows = rows_of(layout)
    for path in paths:
        DeltaTable(str(path)).create_checkpoint()
    migrate_root(layout)
    assert_brought_up(layout, rows)
    for path in paths:
        DeltaTable(str(path)).create_checkpoint()
    assert_brought_up(layout, rows)
