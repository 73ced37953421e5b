"""What is lost or spoilt of a root in an object store is found, said, and mended where the data is there, as on
a disk."""

import json
import threading

import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.errors import NotAllowedError
from pulsar_spark.storage.delta.checkpoints import make_checkpoint
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes import lease as lease_module
from pulsar_spark.storage.processes.lease import BundleLease
from pulsar_spark.storage.repair import repair
from pulsar_spark.storage.repair.mending import mend_topic
from pulsar_spark.storage.topics.topics import create_topic, prepare_root, read_topic
from tests.broker.test_disk import TOPIC, ask
from tests.storage.test_repair import state, tables
from tests.support.object_store import asking, messages, new_layout, new_root, wait_shortly
from tests.support.requests import On
from tests.support.s3_proxy import PASS, SLOW_DOWN, s3_proxy
from tests.support.spark_engine import SparkEngine, new_engine

ON = On(TOPIC)


@pytest.fixture
def engine(in_store) -> SparkEngine:
    """Two publishes, two commits of requests, three rounds."""
    engine = new_engine(None, new_root())
    engine.create_topic(TOPIC)
    for number in range(2):
        engine.publish(TOPIC, -1, [1, 2], publish_time_ms=0)
        engine.round([ON.subscribe("A"), ON.flow("A", 2)], number)
        ask(engine.layout, ON.flow("A", number + 1))
    return engine


@pytest.fixture
def admin(engine) -> Admin:
    return Admin(f"delta:{engine.layout.root}")


@pytest.fixture
def settled(monkeypatch):
    """Nobody writes any more."""
    monkeypatch.setattr(repair, "_UNDER_WAY_SECONDS", -10)


@pytest.mark.parametrize("name", ["cursor_ledger", TOPIC])
def test_commits_that_are_spoilt_or_gone_are_named_and_mended(engine, admin, settled, name):
    assert admin.doctor() == [] and admin.repair() == []
    path, before = tables(engine)[name], state(engine)
    for is_gone in (False, True):
        file = TableLog(path).file(1)
        whole = file.read_text()
        file.unlink() if is_gone else file.write_text(whole[: len(whole) // 3])
        [finding] = admin.doctor()
        assert (finding["kind"], finding["table"], finding["version"]) == ("broken_commit", name, 1)
        [would] = admin.repair(name, dry_run=True)
        assert would["is_done"] and (not file.is_file() or file.read_text() != whole)
        [mended] = admin.repair(name)
        assert mended["is_done"] and mended["files"] == [json.loads(whole.splitlines()[1])["add"]["path"]]
        assert admin.doctor() == [] and state(engine) == before
    kept = [name for name in path.store.names(path / "_delta_log") if ".broken-" in name]
    assert len(kept) == 1, "of the commit that was gone there was nothing to keep"


def test_what_may_be_of_a_writer_under_way_is_not_taken_for_a_commits(engine, admin):
    """Nobody can keep writers out meanwhile."""
    file = TableLog(tables(engine)["requests"]).file(1)
    whole = file.read_text()
    file.write_text("")
    [refused] = admin.repair()
    assert not refused["is_done"] and "run it again later" in refused["text"] and file.read_text() == ""
    file.write_text(whole[:-20])
    [mended] = admin.repair()
    assert mended["is_done"], "what is left of it names them"


def test_a_commit_that_another_mends_meanwhile_is_left_to_him(engine, settled, monkeypatch):
    path = tables(engine)["requests"]
    file, store = TableLog(path).file(1), path.store
    whole = file.read_text()
    file.write_text("")
    put_over = store.put_over

    def put_late(name, content, known):
        if str(name) == str(file):
            put_over(name, whole.encode(), known)
        return put_over(name, content, known)

    monkeypatch.setattr(store, "put_over", put_late)
    with pytest.raises(OSError, match="meanwhile"):
        repair.repair_root(engine.layout, "requests")
    assert file.read_text() == whole


def test_a_lost_data_file_and_a_broken_checkpoint_are_found(engine, admin):
    path = tables(engine)[TOPIC]
    broken = path / "_delta_log" / f"{make_checkpoint(path):020d}.checkpoint.parquet"
    broken.write_bytes(b"")
    [finding] = admin.doctor()
    assert (finding["kind"], finding["command"]) == ("broken_checkpoint", "pulsar-spark repair")
    [mended] = admin.repair(TOPIC)
    assert mended["is_done"] and admin.doctor() == []
    [file] = TableLog(path).commit(2).added
    (path / file.path).unlink()
    [finding] = admin.doctor()
    assert finding["kind"] == "missing_file" and file.path in finding["text"]


def test_a_store_that_does_not_answer_is_no_damage(s3, monkeypatch):
    """What cannot be read now is whole all the same."""
    wait_shortly(monkeypatch)
    root, is_away = new_root(), threading.Event()
    prepare_root(Layout(root))
    AppendTable(create_topic(Layout(root), "t").path).append(messages("p"))

    def answer(asked):
        return SLOW_DOWN if is_away.is_set() and asked.key.endswith(f"{1:020d}.json") else PASS

    with s3_proxy(s3, answer) as url, asking(url):
        admin = Admin(f"delta:{root}")
        is_away.set()
        with pytest.raises(OSError, match="503|SlowDown"):
            admin.doctor()
        with pytest.raises(OSError, match="503|SlowDown"):
            admin.repair("requests")
        is_away.clear()
        assert admin.doctor() == []


def test_a_topic_is_mended(layout):
    topic = create_topic(layout, "t")
    for publish_id in ("p", "q"):
        AppendTable(topic.path).append(messages(publish_id))
    log = TableLog(topic.path)
    log.file(1).write_text(log.file(1).read_text() + "nonsense\n")
    [mended] = mend_topic(layout, read_topic(layout, "t"))
    assert mended.version == 1 and [len(commit.added) for commit in log.commits(0)] == [1, 1]


@pytest.fixture
def layout(in_store) -> Layout:
    return new_layout()


def test_nothing_is_mended_while_a_broker_serves_and_one_that_is_gone_serves_none(layout, monkeypatch):
    """Who asks once has not seen the lease before, so it looks for as long as one lasts."""
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(lease_module, "_LOOK_SECONDS", 0.1)
    serving, stop = BundleLease(layout, "somebody"), threading.Event()
    assert serving.take()

    def renew() -> None:
        while not stop.wait(0.3):
            serving.take()

    renewing = threading.Thread(target=renew, daemon=True)
    renewing.start()
    admin = Admin(f"delta:{layout.root}")
    try:
        with pytest.raises(NotAllowedError, match="somebody.*stop it first"):
            admin.repair()
    finally:
        stop.set()
        renewing.join()
    assert admin.repair() == []
    assert admin.repair("delay-index")[0]["is_done"]
