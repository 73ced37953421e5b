"""An address that answers to the wrong people, or a probe that says the wrong thing, is found here."""

import threading
import urllib.error
import urllib.request

import pytest
from deltalake.exceptions import DeltaError

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.metrics import exporter as module
from pulsar_spark.metrics.exporter import Exporter
from pulsar_spark.metrics.exposition import CONTENT_TYPE
from pulsar_spark.metrics.process import metrics_of_this_process
from pulsar_spark.metrics.server import listener, serving
from pulsar_spark.metrics.settings import LOOPBACK
from tests.support.exposition import read_exposition
from tests.support.waiting import DEADLINE_SECONDS, send


def ask(address, path: str) -> tuple[int, str, str]:
    """The status, the content type and the body."""
    url = f"http://127.0.0.1:{address[1]}{path}"
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_paths(pulsar_client, pulsar_broker, monkeypatch):
    monkeypatch.setattr(module, "FRESH_SECONDS", 0)
    pulsar_client.subscribe("orders", "billing").close()
    send(pulsar_client, "orders", "a")
    pulsar_broker.settle()
    with serving(Exporter(pulsar_broker.layout.root), listener(LOOPBACK, 0)) as server:
        assert server.server_address[0] == "127.0.0.1"
        for path in ("/metrics", "/metrics/?x=1"):
            status, kind, text = ask(server.server_address, path)
            assert (status, kind) == (200, CONTENT_TYPE)
            assert read_exposition(text)["pulsar_subscription_back_log"].value() == 1
        assert (
            ask(server.server_address, "/healthz")[::2] == (200, "ok\n") == ask(server.server_address, "/readyz")[::2]
        )
        assert ask(server.server_address, "/other")[0] == 404
        pulsar_broker.close()
        assert ask(server.server_address, "/readyz")[0] == 503 and ask(server.server_address, "/healthz")[0] == 200


def test_many_at_once_get_whole_answers(pulsar_client, pulsar_broker):
    pulsar_client.subscribe("orders", "billing").close()
    pulsar_broker.settle()
    answers = []
    with serving(Exporter(pulsar_broker.layout.root), listener(LOOPBACK, 0)) as server:
        threads = [
            threading.Thread(target=lambda: answers.append(ask(server.server_address, "/metrics"))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
    assert len(answers) == 8 and {status for status, *_ in answers} == {200}
    assert all(read_exposition(text) for *_, text in answers)


@pytest.mark.parametrize("error", [OSError, DeltaError])
def test_a_root_that_fails_is_an_answer(pulsar_broker, monkeypatch, error):
    def fail(*_):
        raise error("the disk is gone")

    shown = Exporter(pulsar_broker.layout.root)
    monkeypatch.setattr(shown, "_look", fail)
    with serving(shown, listener(LOOPBACK, 0)) as server:
        assert ask(server.server_address, "/metrics")[::2] == (503, f"{error.__name__}: the disk is gone\n")
        assert ask(server.server_address, "/healthz")[0] == 200


def test_an_address_that_is_taken():
    with listener(LOOPBACK, 0) as taken, pytest.raises(InvalidConfiguration, match="port"):
        listener(LOOPBACK, taken.getsockname()[1])
    with pytest.raises(InvalidConfiguration, match="host"):
        listener("192.0.2.1", 0)


@pytest.mark.long
def test_a_broker_has_a_process_that_ends_with_it(pulsar_client, pulsar_broker):
    pulsar_client.subscribe("orders", "billing").close()
    pulsar_broker.settle()
    with metrics_of_this_process(pulsar_broker.layout.root, port=0, host=LOOPBACK, most=10) as address:
        status, _, text = ask(address, "/metrics")
        assert status == 200 and ask(address, "/readyz")[0] == 200
        assert read_exposition(text)["pulsar_subscription_back_log"].value(subscription="billing") == 0
    with pytest.raises(urllib.error.URLError):
        ask(address, "/healthz")
    with metrics_of_this_process(pulsar_broker.layout.root, port=None, host=LOOPBACK, most=10) as address:
        assert address is None
