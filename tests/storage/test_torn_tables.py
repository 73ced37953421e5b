"""Tables of which something is torn, a commit, a checkpoint or a data file: one error that names it and says what
mends it, for everybody who meets it, and no library's own text."""

import contextlib
import datetime
import json
import re
import shutil

import pytest
from typer.testing import CliRunner

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.cli.main import app
from pulsar_spark.errors import CorruptState
from pulsar_spark.storage.delta.checkpoints import make_checkpoint
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.views.dead_letters import count_letters

NAMED = re.compile(r"'pulsar-spark doctor'.*'pulsar-spark repair'")
EARLIEST = pulsar.InitialPosition.Earliest


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A root with a few messages, acknowledged and not, and one that waits for its time."""
    root = tmp_path_factory.mktemp("torn") / "root"
    with PlainBroker(root) as broker, contextlib.closing(pulsar.Client(f"delta:{root}")) as client:
        producer = client.create_producer("t")
        shared = pulsar.ConsumerType.Shared
        consumer = client.subscribe("t", "s", consumer_type=shared, initial_position=EARLIEST)
        for number in range(3):
            producer.send(f"m{number}".encode(), partition_key="k")
            consumer.acknowledge(consumer.receive(60_000)) if number < 2 else consumer.receive(60_000)
        producer.send(b"later", deliver_after=datetime.timedelta(hours=1))
        broker.asked("ack")
    return root


@pytest.fixture
def torn(template, tmp_path):
    """A copy of that root, the path of a table in it, and how to tear something of that."""
    root = tmp_path / "root"
    shutil.copytree(template, root)
    return root


def empty(log):
    log.file(log.latest()).write_bytes(b"")


def zeros(log):
    log.file(log.latest()).write_bytes(b"\0" * 900)


def half(log):
    log.file(log.latest()).write_bytes(log.file(log.latest()).read_bytes()[:200])


def binary(log):
    log.file(log.latest()).write_bytes(b"\x80\xff\x00\x12" * 50)


def no_commit(log):
    log.file(log.latest() - 1).unlink()


def checkpoint(log):
    make_checkpoint(log.folder.parent)
    for file in log.folder.glob("*.checkpoint*.parquet"):
        file.write_bytes(file.read_bytes()[:30])


def checkpoint_that_is_not_there(log):
    (log.folder / "_last_checkpoint").write_text('{"version": 1, "size": 5}')


def no_data_file(log):
    (log.folder.parent / log.commit(log.latest()).added[0].path).unlink()


def torn_data_file(log):
    file = log.folder.parent / log.commit(log.latest()).added[0].path
    file.write_bytes(file.read_bytes()[:-20])


def garbled_data_file(log):
    file = log.folder.parent / log.commit(log.latest()).added[0].path
    file.write_bytes(b"x" * file.stat().st_size)


OF_LOGS = [empty, half, binary, zeros, no_commit, checkpoint, checkpoint_that_is_not_there]
OF_FILES = [no_data_file, torn_data_file, garbled_data_file]


def tables(layout):
    return {
        "ledgers": layout.broker_table("ledgers"),
        "cursor_ledger": layout.broker_table("cursor_ledger"),
        "topic": layout.namespace("public", "default") / "t",
    }


def use(root):
    """A broker, a client, an admin and the command line."""
    with PlainBroker(root), contextlib.closing(pulsar.Client(f"delta:{root}", operation_timeout_seconds=30)) as client:
        consumer = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Shared)
        assert consumer.receive(60_000).data() == b"m2"


@pytest.mark.parametrize("tear", [*OF_LOGS, *OF_FILES], ids=lambda tear: tear.__name__)
def test_torn_ledgers_are_one_error_for_everybody(torn, tear):
    layout, admin = Layout(torn), Admin(f"delta:{torn}")
    tear(TableLog(layout.broker_table("ledgers")))
    for meet in (
        lambda: use(torn),
        lambda: admin.stats("t"),
        lambda: admin.peek_messages("t", "s", 2),
        lambda: list(admin.scheduled("t")),
    ):
        with pytest.raises(CorruptState, match=NAMED) as met:
            meet()
        assert "/ledgers'" in str(met.value) and "\n" not in str(met.value) and "<unknown>" not in str(met.value)
    if tear is not garbled_data_file:  # which is as long as it should be
        assert [finding["table"] for finding in admin.doctor()] == ["ledgers"]
    said = CliRunner().invoke(app, ["stats", "t", "--root", str(torn)])
    assert isinstance(said.exception, CorruptState), "of which the command line prints the text"


@pytest.mark.parametrize("tear", OF_LOGS, ids=lambda tear: tear.__name__)
@pytest.mark.parametrize("table", ["ledgers", "cursor_ledger", "topic"])
def test_every_table_is_opened_or_refused_by_the_one_error(torn, table, tear):
    path = tables(Layout(torn))[table]
    tear(TableLog(path))
    with pytest.raises(CorruptState, match=NAMED) as met:
        open_table(path)
    assert repr(str(path)) in str(met.value)


@pytest.mark.parametrize("tear", OF_FILES, ids=lambda tear: tear.__name__)
def test_a_round_of_which_a_file_is_torn_is_the_one_error(torn, tear, only_in_files):
    tear(TableLog(Layout(torn).broker_table("cursor_ledger")))
    for meet in (lambda: use(torn), lambda: Admin(f"delta:{torn}").stats("t")):
        with pytest.raises(CorruptState, match=NAMED) as met:
            meet()
        assert "cursor_ledger'" in str(met.value)


@pytest.mark.parametrize("tear", OF_FILES, ids=lambda tear: tear.__name__)
def test_letters_of_which_a_file_is_torn_are_the_one_error(torn, tear):
    """As ``pulsar-spark dlq count`` counts them; it takes any topic."""
    layout = Layout(torn)
    topic = read_topic(layout, "t")
    tear(TableLog(topic.path))
    with pytest.raises(CorruptState, match=NAMED):
        count_letters(layout, topic)


@pytest.mark.parametrize("tear", [checkpoint, checkpoint_that_is_not_there], ids=lambda tear: tear.__name__)
def test_repair_mends_checkpoints_of_every_table(torn, tear):
    admin = Admin(f"delta:{torn}")
    for path in tables(Layout(torn)).values():
        tear(TableLog(path))
    assert {finding["command"] for finding in admin.doctor()} == {"pulsar-spark repair"}
    assert all(mended["is_done"] for mended in admin.repair())
    assert admin.doctor() == []
    use(torn)


@pytest.mark.parametrize("tear", [empty, half, binary, zeros], ids=lambda tear: tear.__name__)
def test_repair_mends_a_torn_commit_of_ledgers(torn, tear):
    tear(TableLog(Layout(torn).broker_table("ledgers")))
    said = CliRunner().invoke(app, ["repair", "--root", str(torn), "--json"])
    assert said.exit_code == 0 and all(mended["is_done"] for mended in json.loads(said.output)), said.output
    use(torn)
