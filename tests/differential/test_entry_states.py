"""The table of an entry's transitions, held against the reference broker: what it does in the specification's cases and
in random histories is what the table says, and nothing in the table is idle."""

import pkgutil
from collections import Counter
from importlib import import_module

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import tests.spec
from pulsar_spark.protocol.acknowledgement.entry_states import ACKNOWLEDGED, EVENTS, STATES, TRANSITIONS, transition
from tests.differential.duel import PARTITIONS, TOPICS
from tests.differential.recorded_states import RecordedStates
from tests.differential.strategies import histories
from tests.spec.history import play, publish
from tests.spec.table import Case, asked, entries
from tests.support.model import Model
from tests.support.requests import On

ANYWHERE = {"seek", "acknowledge", "acknowledge a part", "negative acknowledge"}
"""What may be asked about any entry, whatever its state between rounds."""


def chapters() -> list:
    """The modules with cases of the specification that are of entries on subscriptions, not of the compacted view."""
    found = pkgutil.walk_packages(tests.spec.__path__, "tests.spec.")
    modules = [import_module(module.name) for module in found if ".test_" in module.name]
    return [module for module in modules if isinstance(next(iter(getattr(module, "CASES", ())), None), Case)]


def play_on_the_model(history, limit: int) -> None:
    model, now_ms = Model(max_unacked_messages_per_broker=limit), 0
    for topic, partitions in PARTITIONS.items():
        model.create_topic(topic, partitions)
    for turn in history:
        now_ms += turn.later_ms
        requests = []
        for step in turn.steps:
            place, _, text = step.partition(": ")
            topic, partition = TOPICS[place.partition("/")[0]]
            if text.startswith("publish "):
                publish(model, topic, partition, entries(text.removeprefix("publish ")), now_ms)
            else:
                requests.append(asked(On(topic, partition, place.partition("/")[2]), text.split()))
        model.round(requests, now_ms)


def test_the_cases_of_the_specification_make_every_transition_and_no_other():
    modules = chapters()
    assert len(modules) > 10
    with RecordedStates() as recorded:
        for module in modules:
            options = getattr(module, "OPTIONS", {})
            for cases in [[case] for case in module.CASES] if options else [module.CASES]:
                play(Model(**options), cases)
    idle = [each for each in TRANSITIONS if each not in recorded.seen]
    assert not idle, "no case of the specification makes them"


def test_random_histories_make_no_other_transition():
    with RecordedStates() as recorded:

        @seed(1)
        @settings(
            max_examples=20,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(histories(), st.sampled_from([0, 0, 6, 14]))
        def follow(history, limit):
            play_on_the_model(history, limit)

        follow()
    assert len(recorded.seen) > len(TRANSITIONS) // 2


def test_each_cause_has_one_outcome_and_each_state_an_answer_to_what_is_asked():
    assert Counter((each.state, each.event, each.guard) for each in TRANSITIONS).most_common(1)[0][1] == 1
    assert {each.state for each in TRANSITIONS} == {each.next_state for each in TRANSITIONS} == set(STATES)
    assert {each.event for each in TRANSITIONS} == set(EVENTS) and all(each.rule for each in TRANSITIONS)
    for state in set(STATES) - {"dead"}:
        assert {each.event for each in TRANSITIONS if each.state == state} >= ANYWHERE


def test_a_wrong_table_is_found_out(monkeypatch):
    """The test above can fail: a table that loses what is left of a batch does not pass the reference broker."""
    wrong = {"acknowledge a part": ACKNOWLEDGED}
    monkeypatch.setattr(
        "tests.differential.recorded_states.transition",
        lambda state, event, guard: transition(state, event, guard)._replace(
            next_state=wrong.get(event, transition(state, event, guard).next_state)
        ),
    )
    module = import_module("tests.spec.acknowledgement.test_batches")
    with RecordedStates(), pytest.raises(AssertionError, match="apply_acks"):
        play(Model(), module.CASES)
