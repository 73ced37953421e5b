"""A consumer's end and its rerun, as a notebook has them: nothing hangs, nothing is left behind, no error is hidden."""

import logging
import threading

import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.errors import AlreadyClosed, ConsumerBusy, InvalidConfiguration, Timeout
from pulsar_spark.frames import active_consumptions, consume
from pulsar_spark.frames.consuming import membership
from pulsar_spark.frames.consuming.consumption import Consumption
from tests.support.waiting import eventually


def nothing(messages, delivery) -> None:
    """Acknowledge everything."""


def run(broker, name: str | None = None, subscription_type: str = "Exclusive", **options) -> Consumption:
    return consume(
        None, broker.layout.root, "t", "s", nothing, consumer_name=name, subscription_type=subscription_type, **options
    )


@pytest.mark.parametrize("subscription_type", ["Exclusive", "Failover", "Shared"])
def test_a_cell_run_again_replaces_the_consumer_of_that_name(served, subscription_type):
    first = run(served, "mine", subscription_type)
    second = run(served, "mine", subscription_type)
    assert not first.is_active and first.exception() is None
    assert second.is_active and active_consumptions() == [second]
    second.stop(10)
    assert active_consumptions() == []


def test_without_a_name_the_refusal_says_who_holds_the_subscription(served):
    with run(served) as first:
        with pytest.raises(
            ConsumerBusy, match=f"It is consumer '{first.consumer_name}' of this process.*active_consumptions"
        ):
            run(served)
        with pytest.raises(ConsumerBusy):
            run(served, "another")
        assert first.is_active
    assert active_consumptions() == []


def test_consumers_of_other_subscriptions_and_names_are_left_alone(served):
    with (
        run(served, "a", "Shared") as first,
        run(served, "b", "Shared"),
        consume(None, served.layout.root, "t", "other", nothing, consumer_name="a") as other,
    ):
        assert len(active_consumptions()) == 3 and first.is_active and other.is_active


def test_the_users_exception_comes_through_and_the_consumer_is_gone(served):
    with pytest.raises(KeyError, match="mine"), run(served) as consumption:
        raise KeyError("mine")
    assert not consumption.is_active and len(served.asked("close")) == 1


def test_the_end_of_a_block_does_not_wait_for_ever_for_a_function(served, monkeypatch, caplog):
    monkeypatch.setattr("pulsar_spark.frames.consuming.consumption.STOP_SECONDS", 0.2)
    release, called = threading.Event(), threading.Event()

    def stuck(messages, delivery):
        called.set()
        release.wait(60)

    import pulsar_spark as pulsar

    client = pulsar.Client(f"delta:{served.layout.root}")
    client.create_producer("t").send(b"x")
    client.close()
    with pytest.raises(KeyError), consume(None, served.layout.root, "t", "s", stuck) as consumption:
        assert called.wait(60)
        raise KeyError
    assert "its function did not return within 0.2 s" in caplog.text
    release.set()
    assert consumption.await_termination(10)


def test_an_interrupted_subscribe_leaves_nobody_who_holds_the_subscription(served, monkeypatch):
    """Ctrl-C in a cell that waits for a broker; the cell is run again afterwards."""
    ask = membership.Channel.ask

    def interrupted(self, *asked, **besides):
        ask(self, *asked, **besides)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(membership.Channel, "ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(served)
    assert active_consumptions() == []
    eventually(lambda: len(served.asked("close")) == 1)
    with run(served) as consumption:
        assert consumption.is_active


def test_what_ends_a_consumer_is_logged_and_kept(served, caplog):
    caplog.set_level(logging.INFO, "pulsar_spark")
    consumption = run(served)
    Admin(f"delta:{served.layout.root}").unsubscribe("t", "s", force=True)
    with pytest.raises(AlreadyClosed, match="was unsubscribed"):
        consumption.await_termination(10)
    assert isinstance(consumption.exception(), AlreadyClosed)
    assert [record.levelno for record in caplog.records if "ended: " in record.getMessage()] == [logging.ERROR]


def test_a_consumer_says_what_it_consumes_and_what_ended_it(served):
    topic = "persistent://public/default/t"
    said = f"topic={topic!r}, subscription='s', subscription_type='Shared', consumer_name='mine'"
    with run(served, "mine", "Shared") as consumption:
        assert repr(consumption) == f"Consumption({said}, state='consuming', messages=0)"
        assert topic in consumption._repr_html_()
        consumption._consumer.backoff.error = ValueError("what nobody is to see")
        assert repr(consumption).endswith("messages=0, error='ValueError')")
    assert "state='ended'" in repr(consumption)


def test_who_lost_what_it_held_says_so_and_goes_on(served, caplog):
    with run(served, "mine") as consumption:
        served.end_lease(consumption._consumer.connection.membership.consumer_id)
        eventually(lambda: len(served.asked("subscribe")) == 2)
        assert consumption.is_active
    assert "lost its messages (lease ended): it subscribes again" in caplog.text


@pytest.mark.parametrize("given", ["Sole", None])
def test_a_type_that_is_not_served_is_refused_without_a_broker_and_makes_nothing(plain, tmp_path, given):
    with pytest.raises(InvalidConfiguration, match="give one of Exclusive, Failover, Shared, KeyShared"):
        consume(None, tmp_path / "none", "t", "s", nothing, subscription_type=given)
    assert not (tmp_path / "none").exists()


def test_without_a_broker_it_is_a_timeout_and_nobody_is_left(plain, layout):
    with pytest.raises(Timeout):
        consume(None, layout.root, "t", "s", nothing, timeout=0.3, create=True)
    assert active_consumptions() == []
