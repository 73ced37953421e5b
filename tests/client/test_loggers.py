"""What a client says of itself, through each of the loggers it may be given; and whether a broker is there."""

import gc
import io
import json
import logging
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import pulsar_spark as pulsar
from pulsar_spark.client.subscribing import reconnection
from pulsar_spark.link.broker_watch import BrokerWatch
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import Holder
from pulsar_spark.storage.topics.topics import prepare_root
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.processes import run
from tests.support.waiting import eventually, in_background


def test_a_broker_that_is_gone_and_one_that_is_back_are_seen_and_said(root_url, service_url, caplog):
    caplog.set_level(logging.INFO, "my")
    with PlainBroker(root_url) as first:
        client = pulsar.Client(service_url, logger=logging.getLogger("my"), operation_timeout_seconds=10)
        consumer = client.subscribe("t", "s", consumer_name="c")
        assert consumer.is_connected()
    eventually(lambda: not consumer.is_connected() and "is gone" in caplog.text)
    with PlainBroker(root_url) as second:
        eventually(consumer.is_connected)
    client.close()
    said = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "my"]
    root, subscription = str(root_url), "subscription 's' of 'persistent://public/default/t'"
    assert said[:4] == [
        ("INFO", f"connected to broker {first.broker_id} of root {root!r}"),
        ("INFO", f"{subscription}: consumer 'c' subscribed"),
        (
            "WARNING",
            f"the broker {first.broker_id} of root {root!r} is gone: nothing is delivered or "
            "answered until a broker is back; requests "
            f"wait; start one with pulsar-spark broker --root {root}",
        ),
        ("INFO", f"connected again to broker {second.broker_id} of root {root!r}"),
    ]


def test_a_broker_that_takes_over_is_said(tmp_path, caplog):
    layout, now = Layout(tmp_path / "root"), [0.0]
    prepare_root(layout)
    caplog.set_level(logging.INFO)
    watch = BrokerWatch(layout, logging.getLogger("watch"), lambda: now[0])
    holders = iter([None, Holder("a", "h", 1, 0), Holder("a", "h", 1, 0), Holder("b", "h", 1, 0)])
    watch._lease.look = lambda _: (next(holders), False, None)
    seen = []
    for second in (0, 0.5, 1, 2, 3):
        now[0] = second
        watch.look()
        seen.append(watch.is_there)
    assert seen == [False, False, True, True, True]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]
    assert "no broker serves root" in caplog.messages[0] and "took over from a" in caplog.messages[2]


@pytest.mark.parametrize(
    "level, lines", [(pulsar.LoggerLevel.Info, ["INFO", "INFO", "ERROR", "INFO"]), (pulsar.LoggerLevel.Warn, ["ERROR"])]
)
@pytest.mark.parametrize("kind", ["console", "file"])
def test_the_packages_loggers_write(client, broker, service_url, tmp_path, kind, level, lines):
    out, path = io.StringIO(), tmp_path / "client.log"
    logger = pulsar.ConsoleLogger(level) if kind == "console" else pulsar.FileLogger(level, str(path))
    with redirect_stdout(out):
        other = pulsar.Client(service_url, logger=logger)
        consumer = other.subscribe("t", "s")
        with pytest.raises(pulsar.ConsumerBusy):
            other.subscribe("t", "s")
        consumer.close()
        other.close()
    written = (out.getvalue() if kind == "console" else path.read_text()).splitlines()
    assert [line.split()[2] for line in written] == lines
    assert all(line[:2] == "20" and " | " in line for line in written)
    assert (out.getvalue() == "") == (kind == "file")


@pytest.mark.parametrize("kind", ["console", "file"])
def test_at_debug_what_goes_on_is_written_and_no_payload(broker, service_url, tmp_path, kind):
    out, path, level = io.StringIO(), tmp_path / "client.log", pulsar.LoggerLevel.Debug
    logger = pulsar.ConsoleLogger(level) if kind == "console" else pulsar.FileLogger(level, str(path))
    with redirect_stdout(out):
        client = pulsar.Client(service_url, logger=logger)
        consumer = client.subscribe("t", "s")
        client.create_producer("t", producer_name="p").send(b"what nobody is to see")
        consumer.acknowledge(consumer.receive(5000))
        client.create_reader("t", pulsar.MessageId.earliest).close()
        client.close()
    written = out.getvalue() if kind == "console" else path.read_text()
    debugged = [line.partition(" | ")[2] for line in written.splitlines() if " DEBUG " in line]
    topic = "persistent://public/default/t"
    for line in (
        f"{topic}: producer 'p' opened",
        f"{topic}: producer 'p' published 1 messages",
        f"{topic}: producer 'p' closed",
        f"{topic}: reader opened",
        f"{topic}: reader closed",
    ):
        assert line in debugged
    assert any(line.startswith("asked in version ") and "1 subscribe" in line for line in debugged)
    assert any(line.startswith("heard the round of version ") for line in debugged)
    assert debugged[0].endswith("opened") and debugged[0].startswith("client ") and "nobody is to see" not in written


def test_a_refused_return_is_said_once(client, other_client, broker, caplog, monkeypatch):
    monkeypatch.setattr(reconnection, "RECONNECT_SECONDS", 0.02)
    consumer = client.subscribe("t", "s", consumer_name="c")
    with broker.paused():
        other = in_background(broker, other_client.subscribe, "t", "s")
        # Its request, not a sign of life: it has to come before the first consumer's next one.
        eventually(lambda: [request.kind for request in broker.requests()].count("subscribe") == 2)
        broker.end_lease(consumer._consumer_id)
    eventually(lambda: len(broker.asked("subscribe")) >= 5)
    said = [
        record.getMessage()
        for record in caplog.records
        if record.levelname == "WARNING" and record.name.startswith("pulsar_spark.client")
    ]
    assert len(said) == 2
    assert "the broker no longer knows the consumer (lease ended)" in said[0]
    assert "could not subscribe again, next try in a second: ConsumerBusy" in said[1]
    other.result(60).close()
    eventually(consumer.is_connected)


@pytest.mark.parametrize("path", ["", "missing/folder/client.log", "."])
def test_a_log_file_that_cannot_be_written_is_refused_by_name(service_url, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pulsar.InvalidConfiguration, match="log file"):
        pulsar.Client(service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, path))


def test_a_file_with_settings_for_pythons_logging(tmp_path, service_url):
    conf, log = tmp_path / "logging.json", tmp_path / "client.log"
    conf.write_text(
        json.dumps(
            {
                "handlers": {"file": {"class": "logging.FileHandler", "filename": str(log)}},
                "loggers": {"pulsar_spark": {"level": "INFO", "handlers": ["file"]}},
            }
        )
    )
    source = f"""
    client = pulsar.Client(url, log_conf_file_path={str(conf)!r}, operation_timeout_seconds=1)
    try:
        client.subscribe("t", "s")
    except pulsar.Timeout:
        print("Timeout")
    client.close()
    """
    assert run(source, service_url) == (0, ["Timeout"], "")
    assert "no broker serves root" in log.read_text()


@pytest.mark.parametrize(
    "content", [None, "log4j.rootLogger=INFO", "[]", '{"handlers": {"x": {"class": "no.such"}}}', "5"]
)
def test_a_file_that_is_no_such_settings_is_refused_by_name(tmp_path, service_url, content):
    conf = tmp_path / "conf"
    if content is not None:
        conf.write_text(content)
    with pytest.raises(pulsar.InvalidConfiguration, match="logging.config.dictConfig"):
        pulsar.Client(service_url, log_conf_file_path=str(conf))


def test_a_program_without_a_logger_is_warned_on_standard_error(service_url):
    source = """
    client = pulsar.Client(url, operation_timeout_seconds=1)
    try:
        client.subscribe("t", "s")
    except pulsar.Timeout:
        print("Timeout")
    client.close()
    """
    code, lines, error = run(source, service_url)
    assert (code, lines) == (0, ["Timeout"])
    assert error.startswith("no broker serves root") and len(error.splitlines()) == 1


@pytest.mark.local_disk
def test_nothing_is_left_of_a_client_that_was_closed(tmp_path, broker, service_url):
    import threading

    before, log = threading.active_count(), tmp_path / "client.log"
    client = pulsar.Client(service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, str(log)))
    for _ in range(2):
        client.create_producer("t").send(b"x")
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
    reader = client.create_reader("t", pulsar.MessageId.earliest)
    assert consumer.receive(60_000).data() == reader.read_next(60_000).data() == b"x"  # and read ahead
    gc.disable()  # what is left may lie in cycles for long
    try:
        client.close()
        assert not client._entries._groups._groups and not client._entries._groups._footers
        assert not client._ledgers._topics
        files = [link.resolve() for link in Path("/proc/self/fd").iterdir() if link.exists()]
        assert not [path for path in files if path.parent == tmp_path / "root/public/default/t"]
    finally:
        gc.enable()
    eventually(lambda: threading.active_count() == before)  # other tests' threads may end meanwhile

    def is_closed() -> bool:
        opened = [link.resolve() for link in Path("/proc/self/fd").iterdir() if link.exists()]
        own = [path for path in opened if tmp_path in path.parents]  # other tests' clients may be open still
        return log not in own and not [path for path in own if path.parent.name == "clients"]

    eventually(is_closed)
