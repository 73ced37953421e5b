"""Order on Exclusive and Failover: nothing behind what a function gives back is handled before it."""

import threading

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.frames import consume
from pulsar_spark.frames.consuming import call
from pulsar_spark.frames.deliveries.delivery import Answer
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.frames.plain import Seconds, positions
from tests.support.waiting import eventually

MESSAGES, A_DELIVERY = 12, 3
ORDERED = ["Exclusive", "Failover"]


class Worker:
    """A function that keeps what it is given, and the first *failures* times gives it back once the next delivery has
    arrived behind it: as a whole, by raising, or row by row."""

    def __init__(self, failures: int, by_row: bool):
        self.failures, self.by_row = failures, by_row
        self.seen: list[int] = []
        self.taken: list[int] = []
        self.consuming = None
        self.started = threading.Event()

    def __call__(self, messages, delivery):
        assert self.started.wait(60)
        got = [position for _, position, _ in positions(delivery)]
        self.seen += got
        if self.failures:
            self.failures -= 1
            if not self.seen[len(got) :]:
                eventually(lambda: not self.consuming._consumer._events.empty())
            if not self.by_row:
                raise RuntimeError("the database is gone")
            return delivery.ranges  # what _answer below makes a give-back of
        self.taken += got
        return None


@pytest.fixture
def rows_answered(monkeypatch):
    """A function that returns ranges gives them back, as one that returns a frame does row by row."""
    whole = call.answer

    def answer(delivery, result):
        return Answer([], list(result)) if isinstance(result, tuple) else whole(delivery, result)

    monkeypatch.setattr(call, "answer", answer)


@pytest.fixture
def root(served, rows_answered):
    client = pulsar.Client(f"delta:{served.layout.root}")
    producer = client.create_producer("t")
    for number in range(MESSAGES):
        producer.send(str(number).encode())
    client.close()
    return served.layout.root


def start(root, worker: Worker, **options):
    consumption = consume(None, root, "t", "s", worker, max_messages=A_DELIVERY, **{"clock": Seconds(), **options})
    worker.consuming = consumption
    worker.started.set()
    return consumption


def taken(worker: Worker, clock: Seconds, wanted: range, broker: PlainBroker) -> None:
    """Let time pass, at the broker too, until all that is *wanted* was handled."""

    def are_taken() -> bool:
        clock.advance(0.05)
        broker.advance(0.05)
        return set(worker.taken) >= set(wanted)

    eventually(are_taken)


@pytest.mark.parametrize("kind", ORDERED)
@pytest.mark.parametrize("by_row", [False, True], ids=["raises", "by row"])
@pytest.mark.parametrize("failures", [1, 3])
def test_what_was_in_flight_behind_is_handled_after_it(root, served, kind, by_row, failures):
    worker, clock = Worker(failures, by_row), Seconds()
    with start(root, worker, clock=clock, subscription_type=kind):
        taken(worker, clock, range(MESSAGES), served)
    assert worker.taken == list(range(MESSAGES)), "each once, and in order"
    again = [position for before, position in zip(worker.seen, worker.seen[1:]) if position <= before]
    assert again == [0] * failures, "it begins again where it was given back, and nowhere else"


def test_on_shared_the_others_go_on(root, served):
    worker, clock = Worker(1, by_row=False), Seconds()
    with start(root, worker, clock=clock, subscription_type="Shared"):
        taken(worker, clock, range(MESSAGES), served)
    assert worker.taken != sorted(worker.taken)


@pytest.mark.parametrize("kind", ORDERED)
def test_what_others_skip_is_not_waited_for(root, served, kind):
    worker, clock = Worker(1, by_row=False), Seconds()
    with start(root, worker, clock=clock, subscription_type=kind):
        eventually(lambda: not worker.failures)
        assert Admin(f"delta:{root}").skip_messages("t", "s", A_DELIVERY) == A_DELIVERY
        taken(worker, clock, range(A_DELIVERY, MESSAGES), served)
    assert worker.taken == list(range(A_DELIVERY, MESSAGES))


@pytest.mark.parametrize("kind", ORDERED)
def test_what_dies_is_not_waited_for(root, served, kind):
    worker, clock = Worker(2, by_row=False), Seconds()
    policy = pulsar.ConsumerDeadLetterPolicy(1)
    with start(root, worker, clock=clock, subscription_type=kind, dead_letter_policy=policy):
        taken(worker, clock, range(A_DELIVERY, MESSAGES), served)
        admin = Admin(f"delta:{root}")
        eventually(lambda: admin.stats("t")["subscriptions"]["s"]["deadLetters"] == A_DELIVERY)
    assert sorted(set(worker.taken)) == list(range(A_DELIVERY, MESSAGES))


@pytest.mark.parametrize("kind", ORDERED)
def test_a_run_over_what_is_there_leaves_what_is_behind_to_the_next(root, kind):
    worker = Worker(1, by_row=True)
    with start(root, worker, subscription_type=kind, available_now=True) as consumption:
        assert consumption.await_termination(60)
    assert worker.taken == []
    again = Worker(0, by_row=True)
    with start(root, again, subscription_type=kind, available_now=True) as consumption:
        assert consumption.await_termination(60)
    assert again.taken == list(range(MESSAGES))
