"""Failures that nobody expected, put where they hurt: what is to blame is set aside and said, everything else goes on,
and it is tried again on demand."""

import errno
import logging
from collections.abc import Callable

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from pulsar_spark.admin import Admin
from pulsar_spark.broker.applying import absorb
from pulsar_spark.broker.committing import commit
from pulsar_spark.broker.cursors.members import Members
from pulsar_spark.broker.gathering import gather
from pulsar_spark.broker.planning.work import Work
from pulsar_spark.broker.requests import set_aside
from pulsar_spark.broker.requests.acknowledgements import Acknowledgements
from pulsar_spark.broker.round import isolation
from pulsar_spark.broker.upkeep import maintenance
from pulsar_spark.errors import BrokerFenced, CorruptState
from pulsar_spark.testing.plain_planner import PlainPlanner
from pulsar_spark.transforms.round_inputs import SCHEMA
from tests.broker.hostile import HEALTHY, ILL, SICK, WELL, HostileRoot, request
from tests.support.crashes import Crash, crash_at

ILL_ID, SICK_ID = f"subscription-{SICK}/-1/ill", f"topic-{SICK}"


class Bug(Exception):
    """Nobody expects it."""


def fails_when(
    function: Callable, is_ill: Callable[..., bool], failure: Callable[[], Exception] = lambda: Bug("no reason at all")
) -> Callable:
    """*function*, which fails with some arguments."""

    def failing(*arguments, **named):
        if is_ill(*arguments, **named):
            raise failure()
        return function(*arguments, **named)

    return failing


def stats(hostile: HostileRoot, topic: str = SICK) -> dict:
    return Admin(f"delta:{hostile.layout.root}").stats(topic)


def retry(hostile: HostileRoot, entry_id: str) -> tuple:
    return hostile.ask(request("retry_set_aside", properties={"id": entry_id}))[0]


def test_a_request_that_fails_is_set_aside_and_answered_and_the_others_are_done(hostile, monkeypatch, caplog):
    with monkeypatch.context() as broken:
        broken.setattr(
            Acknowledgements,
            "ack",
            fails_when(Acknowledgements.ack, lambda self, row: row.topic == SICK and row.first == 1),
        )
        version = hostile.write(ILL.ack(0), row := ILL.ack(1), ILL.ack(2, receipt=True))
        replies = {reply.request_id: reply for reply in hostile.serve()}
        assert list(hostile.aside) == [f"request-{version}-1"]
        assert (replies[row["request_id"]].error, "Bug: no reason at all" in replies[row["request_id"]].text) == (
            "UnknownError",
            True,
        )
        assert [record.exc_info[0] for record in caplog.records if record.levelno == logging.ERROR] == [Bug], (
            "said once, with its cause"
        )
        assert hostile.engine.state(SICK, -1, "ill")["mark_delete_position"] == 0
        assert hostile.engine.state(SICK, -1, "ill")["acknowledged"] == [(2, 2)]
        hostile.holds()
        error, text = retry(hostile, f"request-{version}-1")
        assert (error, "0 of 1 tried again" in text, list(hostile.aside)) == (
            "UnknownError",
            True,
            [f"request-{version}-1"],
        )
    assert retry(hostile, f"request-{version}-1") == (None, "1")
    assert (hostile.aside, hostile.engine.state(SICK, -1, "ill")["mark_delete_position"]) == ({}, 2)
    assert retry(hostile, f"request-{version}-1")[0] == "InvalidConfiguration"
    hostile.holds()


def spoil_rounds(monkeypatch) -> None:
    """Nothing fails before all rows of a round come together, so no unit is named."""
    rows_of_round = commit.rows_of_round

    def spoiled(number, facts, pages):
        if any(fact.get("client_id") == "spoiled" for fact in facts):
            raise OverflowError("int too large to convert")
        return rows_of_round(number, facts, pages)

    monkeypatch.setattr(commit, "rows_of_round", spoiled)


def test_a_request_that_spoils_the_rows_of_its_round_is_found_among_many(hostile, monkeypatch):
    spoil_rounds(monkeypatch)
    version = hostile.write(
        *(ILL.subscribe(f"c{number}", client="spoiled" if number == 11 else "fine") for number in range(20))
    )
    hostile.serve()
    assert list(hostile.aside) == [f"request-{version}-11"]
    assert len(hostile.engine.state(SICK, -1, "ill")["consumers"]) == 20, "one there was, and nineteen"
    hostile.holds()


def test_a_crash_while_such_a_request_is_searched_loses_no_request_and_repeats_none(hostile, monkeypatch):
    spoil_rounds(monkeypatch)
    flows = [ILL.flow("c", 1) for _ in range(8)]
    hostile.write(*flows, ILL.subscribe("spoiled", client="spoiled"), *flows)
    with crash_at(hostile.engine, "cursor_ledger", "after"), pytest.raises(Crash):
        hostile.serve()
    hostile.restart()
    assert hostile.rounds.has_waiting_requests, "the second half"
    hostile.serve()
    (permits,) = (
        cursor.consumers["c"].permits for key, cursor in hostile.rounds.bundle.cursors.items() if key[2] == "ill"
    )
    assert permits == 1000 - 6 + 16 and len(hostile.aside) == 1
    hostile.holds()


@pytest.mark.parametrize(
    "module, name, is_ill",
    [
        (gather._Gathering, "_add", lambda _, asked, *__: asked.cursor.topic == SICK),
        (absorb, "_absorb_cursor", lambda asked, *_: asked.cursor.topic == SICK),
    ],
)
def test_a_subscription_that_fails_is_set_aside_and_served_again_on_demand(hostile, monkeypatch, module, name, is_ill):
    with monkeypatch.context() as broken:
        broken.setattr(module, name, fails_when(getattr(module, name), is_ill))
        assert hostile.ask(ILL.ack(0, receipt=True))[0] is not None
        assert list(hostile.aside) == [ILL_ID]
        ill = stats(hostile)["subscriptions"]["ill"]
        assert (ill["error"], ill["errorKind"]) == ("Bug: no reason at all", "set_aside")
        hostile.holds()
        assert hostile.ask(ILL.ack(0, receipt=True))[0][0] == "NotAllowedError"
        replies = hostile.ask(request("retry_set_aside", properties={"id": ILL_ID}), ILL.ack(0, receipt=True))
        assert [error for error, _ in replies] == ["UnknownError", "NotAllowedError"]
        assert list(hostile.aside) == [ILL_ID]
    assert retry(hostile, ILL_ID) == (None, "1")
    assert "error" not in stats(hostile)["subscriptions"]["ill"]
    assert hostile.ask(*(ILL.ack(position, receipt=True) for position in range(4))) == [(None, None)] * 4
    assert hostile.engine.state(SICK, -1, "ill")["mark_delete_position"] == 3
    hostile.holds()


def test_what_a_consumer_held_that_left_meanwhile_comes_back(hostile, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(
            gather._Gathering,
            "_add",
            fails_when(gather._Gathering._add, lambda _, asked, *__: asked.cursor.topic == SICK),
        )
        hostile.ask(ILL.flow("c", 1), request("close", client=f"client-{SICK}"))
        hostile.ask(ILL.ack(0))
        assert list(hostile.aside) == [ILL_ID]
    hostile.restart()
    retry(hostile, ILL_ID)
    state = hostile.engine.state(SICK, -1, "ill")
    assert state["pending"] == {} and sorted(state["replay"]) == [0, 1, 2, 3] and state["consumers"] == {}


def test_an_unsubscribe_takes_the_entry_with_it(hostile, monkeypatch):
    monkeypatch.setattr(
        gather._Gathering, "_add", fails_when(gather._Gathering._add, lambda _, asked, *__: asked.cursor.topic == SICK)
    )
    hostile.ask(ILL.ack(0))
    assert list(hostile.aside) == [ILL_ID]
    assert hostile.ask(ILL.unsubscribe(force=True)) == [(None, None)]
    assert (hostile.aside, hostile.engine.subscriptions(SICK)) == ({}, [])
    hostile.holds()


class SickPlanner(PlainPlanner):
    """Fails as soon as a cursor of the sick topic is among those to plan; in some moods whatever there is to plan."""

    is_dead = False

    def run(self, work):
        if self.is_dead or any(asked.cursor.topic == SICK for asked in work.cursors if SICK in self.ill):
            raise Bug("no plan")
        return super().run(work)

    def __init__(self):
        self.ill = ()


def test_a_plan_that_fails_is_narrowed_down_to_its_cursor(tmp_path):
    planner = SickPlanner()
    hostile = HostileRoot(tmp_path / "root", planner)
    planner.ill = (SICK,)
    hostile.write(ILL.ack(0), WELL.flow("c", 1))
    hostile.flows()
    assert list(hostile.aside) == [ILL_ID]
    hostile.holds()
    planner.ill = ()
    assert retry(hostile, ILL_ID) == (None, "1")
    hostile.holds()


def test_a_planner_that_fails_whatever_it_is_given_sets_nobody_aside(tmp_path, monkeypatch, caplog):
    planner = SickPlanner()
    hostile = HostileRoot(tmp_path / "root", planner)
    at = [100.0]
    monkeypatch.setattr(hostile.rounds._recovery, "_clock", lambda: at[0])
    planner.is_dead = True
    hostile.write(ILL.ack(0))
    for _ in range(20):
        hostile.serve()
        at[0] += 0.4
    assert hostile.aside == {} and hostile.rounds.is_waiting
    assert len([record for record in caplog.records if "every round fails" in record.getMessage()]) == 1
    planner.is_dead = False
    at[0] += 60
    hostile.serve()
    assert hostile.engine.state(SICK, -1, "ill")["mark_delete_position"] == 0
    hostile.holds()


def test_a_topic_that_fails_in_maintenance_is_set_aside_with_its_subscriptions(hostile, monkeypatch):
    hostile.ask(ILL.policy("message_ttl_seconds", 3600), WELL.policy("message_ttl_seconds", 3600))
    with monkeypatch.context() as broken:
        broken.setattr(
            maintenance,
            "_check_in_time",
            fails_when(maintenance._check_in_time, lambda bundle, draft, state: str(state.topic.name) == SICK),
        )
        assert hostile.ask(ILL.ack(0, receipt=True))[0][0] == "NotAllowedError"
        assert list(hostile.aside) == [SICK_ID]
        assert (stats(hostile)["error"], "error" in stats(hostile, HEALTHY)) == ("Bug: no reason at all", False)
        assert (stats(hostile)["errorKind"], "errorKind" in stats(hostile, HEALTHY)) == ("set_aside", False)
        hostile.holds()
        assert retry(hostile, SICK_ID)[0] == "UnknownError"
        assert hostile.ask(request("drop_set_aside", properties={"id": SICK_ID}))[0][0] == "NotAllowedError"
    assert retry(hostile, SICK_ID) == (None, "1")
    assert "error" not in stats(hostile)
    assert hostile.ask(ILL.ack(0, receipt=True)) == [(None, None)]
    hostile.holds()


def test_several_fail_in_one_round(hostile, monkeypatch):
    monkeypatch.setattr(
        gather._Gathering, "_add", fails_when(gather._Gathering._add, lambda _, asked, *__: asked.cursor.topic == SICK)
    )
    monkeypatch.setattr(Members, "flow", fails_when(Members.flow, lambda self, row: row.permits == 7))
    version = hostile.write(ILL.flow("c", 7), WELL.flow("c", 7), ILL.ack(0))
    hostile.serve()
    assert set(hostile.aside) == {f"request-{version}-0", f"request-{version}-1", ILL_ID}
    hostile.holds()


@pytest.mark.parametrize("where", ["cursor_ledger", "ledgers"])
def test_an_error_of_the_machine_is_nobody_s_fault_and_the_round_can_be_run_again(hostile, monkeypatch, where):
    hostile.engine.publish(SICK, -1, [1])
    hostile.write(ILL.ack(0), WELL.flow("c", 1))
    with monkeypatch.context() as full:

        def no_space(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(getattr(hostile.rounds.tables, where), "append_fenced", no_space)
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                hostile.serve()
    hostile.serve()
    assert hostile.aside == {}
    assert hostile.engine.state(SICK, -1, "ill")["mark_delete_position"] == 0
    hostile.holds()


def test_an_error_of_the_machine_within_a_request_is_nobody_s_fault(hostile, monkeypatch):
    with monkeypatch.context() as full:
        full.setattr(
            Members,
            "flow",
            fails_when(Members.flow, lambda *_: True, lambda: OSError(errno.EMFILE, "Too many open files")),
        )
        hostile.write(WELL.flow("c", 1))
        with pytest.raises(OSError, match="Too many"):
            hostile.serve()
    hostile.holds()
    assert hostile.aside == {}


def test_a_bundle_that_was_taken_over_and_a_ledger_that_breaks_its_promises_stop_the_broker(hostile, monkeypatch):
    for failure in (BrokerFenced("another"), CorruptState("round 3 is gone")):
        with monkeypatch.context() as broken:
            broken.setattr(
                hostile.rounds.tables.cursor_ledger,
                "append_fenced",
                fails_when(lambda *_: 0, lambda *_: True, lambda: failure),
            )
            hostile.write(ILL.ack(0))
            with pytest.raises(type(failure)):
                hostile.serve()


def test_leases_run_on_over_a_failure(hostile, monkeypatch):
    """Whoever fails gains no time by it."""
    hostile.ask(ILL.subscribe("brief", lease_ms=1000, client="brief"))
    hostile.engine.now_ms = 900
    with monkeypatch.context() as broken:
        broken.setattr(Members, "flow", fails_when(Members.flow, lambda *_: True))
        hostile.ask(WELL.flow("c", 1))
    hostile.engine.now_ms = 1000
    hostile.serve()
    assert "brief" not in hostile.engine.state(SICK, -1, "ill")["consumers"]
    hostile.holds()


@pytest.mark.parametrize(
    "failure, is_gone",
    [
        (ConnectionRefusedError("nobody listens"), True),
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (Py4JError("An error occurred while calling o12.isActive"), True),
        (
            Py4JError("An error occurred while calling o12.foo. Trace:\npy4j.Py4JException: Method foo does not exist"),
            False,
        ),
        (RuntimeError("a bug"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_a_plan_that_fails_because_spark_is_gone_is_nobodys(failure, is_gone):
    """One answer for all: what says so ends the round as it is, and nothing is set aside for it."""
    assert isolation.is_spark_gone(failure) is is_gone
    assert not isolation.is_spark_gone(Py4JJavaError.__new__(Py4JJavaError)), "Java has answered"

    def plan(work):
        raise failure

    with pytest.raises(type(failure) if is_gone else isolation.PlannerFailed):
        isolation.plan_isolated(plan, Work(SCHEMA.empty_table(), [], []))


def test_of_requests_that_are_set_aside_only_the_latest_are_kept(hostile, monkeypatch, caplog):
    """Neither the broker's memory nor its snapshots grow with what a client goes on asking."""
    monkeypatch.setattr(set_aside, "MOST_REQUESTS", 3)
    with monkeypatch.context() as broken:
        broken.setattr(Acknowledgements, "ack", fails_when(Acknowledgements.ack, lambda self, row: row.topic == SICK))
        versions = []
        for position in range(5):
            versions.append(hostile.write(ILL.ack(position)))
            hostile.serve()
        assert list(hostile.aside) == [f"request-{version}-0" for version in versions[2:]]
        assert f"request-{versions[0]}-0 first" in caplog.text
        hostile.restart()
        assert list(hostile.aside) == [f"request-{version}-0" for version in versions[2:]]
        version = hostile.write(*(ILL.ack(position) for position in range(5)))
        hostile.serve()
        assert list(hostile.aside) == [f"request-{version}-{row}" for row in (2, 3, 4)]
    hostile.holds()
