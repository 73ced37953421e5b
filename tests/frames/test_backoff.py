"""A function that raises: told in the log, by exception() and last_progress, called again after growing pauses; nothing
is lost meanwhile."""

import logging
import threading

import pytest

import pulsar_spark as pulsar
from pulsar_spark.frames import consume
from tests.frames.plain import Seconds, positions
from tests.support.waiting import eventually

LOGGER = "pulsar_spark.frames"


class Flaky:
    """A function that raises as long as it is told to."""

    def __init__(self):
        self.error: Exception | None = RuntimeError("the database is gone")
        self.calls: list[list] = []

    def __call__(self, messages, delivery):
        self.calls.append(positions(delivery))
        if self.error:
            raise self.error.with_traceback(None)


@pytest.fixture
def publish(served):
    """Publish so many messages to "t"."""

    def publish(count: int) -> None:
        client = pulsar.Client(f"delta:{served.layout.root}")
        producer = client.create_producer("t")
        for number in range(count):
            producer.send(str(number).encode())
        client.close()

    return publish


@pytest.mark.parametrize("subscription_type", ["Exclusive", "Failover", "Shared"])
def test_the_pause_grows_to_a_minute_and_is_told_and_a_success_resets_it(served, publish, caplog, subscription_type):
    caplog.set_level(logging.INFO, LOGGER)
    publish(3)
    clock, function = Seconds(), Flaky()
    with consume(
        None, served.layout.root, "t", "s", function, clock=clock, subscription_type=subscription_type
    ) as consumption:
        for number, pause in enumerate([1, 2, 4, 8, 16, 32, 60, 60]):
            eventually(
                lambda: (
                    len(function.calls) == number + 1
                    and (consumption.last_progress or {}).get("failures") == number + 1
                )
            )
            assert (consumption.last_progress["pause_seconds"], consumption.last_progress["error"]) == (
                pause,
                "RuntimeError('the database is gone')",
            )
            assert consumption.is_active and consumption.exception() is function.error
            eventually(lambda: len(served.asked("negative_ack")) == number + 1)
            served.advance(pause)
            clock.advance(pause - 0.001)
            assert not threading.Event().wait(0.1) and len(function.calls) == number + 1, (
                "it is not called before the pause is over"
            )
            clock.advance(0.001)
        eventually(lambda: len(function.calls) == 9)
        function.error = None
        eventually(lambda: len(served.asked("negative_ack")) == 9 and consumption.last_progress["failures"] == 9)
        served.advance(60)
        clock.advance(60)
        eventually(lambda: consumption.last_progress["failures"] == 0)
        assert consumption.exception() is None
        function.error = ValueError("another one")
        publish(1)
        eventually(lambda: consumption.last_progress["failures"] == 1)
        assert consumption.last_progress["pause_seconds"] == 1
    assert [request.delay_ms for request in served.asked("negative_ack")][:3] == [1000, 2000, 4000]
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 10
    assert {(type(record.exc_info[1]), str(record.exc_info[1])) for record in told} == {
        (RuntimeError, "the database is gone"),
        (ValueError, "another one"),
    }
    assert (
        "the function raised, 3 messages" in told[8].getMessage() and "the next call is in 60 s" in told[8].getMessage()
    )


def test_stop_ends_a_pause_at_once_and_the_error_stays_known(served, publish):
    publish(1)
    function = Flaky()
    consumption = consume(None, served.layout.root, "t", "s", function, clock=Seconds())
    eventually(lambda: consumption.last_progress)
    consumption.stop(5)
    assert not consumption.is_active and consumption.exception() is function.error
    assert consumption.await_termination(0), "it ended because it was told to"


def test_what_ends_the_function_by_force_is_an_error_like_others(served, publish):
    publish(1)
    function = Flaky()
    function.error = SystemExit(3)
    clock = Seconds()
    with consume(None, served.layout.root, "t", "s", function, clock=clock) as consumption:
        eventually(lambda: consumption.last_progress)
        assert consumption.exception() is function.error
        function.error = None
        eventually(lambda: served.asked("negative_ack"))
        served.advance(1)
        clock.advance(1)
        eventually(lambda: consumption.last_progress["error"] is None)
        assert consumption.totals == {
            "deliveries": 2,
            "messages": 2,
            "acknowledged": 1,
            "given_back": 1,
            "put_off": 0,
            "failures": 1,
        }


def test_a_line_a_minute_says_what_was_done(served, publish, caplog):
    caplog.set_level(logging.INFO, LOGGER)
    publish(2)
    clock, function = Seconds(), Flaky()
    function.error = None
    with consume(None, served.layout.root, "t", "s", function, clock=clock, consumer_name="reader") as consumption:
        eventually(lambda: consumption.totals["messages"] == 2)
        clock.advance(60)
        eventually(lambda: any("in 60 s" in record.getMessage() for record in caplog.records))
        assert "starts at Earliest" in caplog.text
    assert "consumer 'reader' of subscription 's' of persistent://public/default/t ended: " in caplog.text
    line = next(record for record in caplog.records if "in 60 s" in record.getMessage())
    assert (line.messages, line.acknowledged, line.failures) == (2, 2, 0)
