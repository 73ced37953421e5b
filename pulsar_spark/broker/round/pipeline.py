"""A round: its steps in order, and what a crash between its writes leaves.

| write, in order | a crash just before it leaves | a crash just after it leaves | who repairs it |
|---|---|---|---|
| requests for other bundles, to their brokers | nothing: all requests stay unread | the same requests twice | nobody: \
twice is harmless |
| rows of ``ledgers``, if something was published | nothing: all requests stay unread | positions that no round has \
used yet; the same entries would get the same positions again | the next broker uses them |
| one commit of ``cursor_ledger``, refused if another broker committed before | nothing: all requests stay unread | \
the whole round | no repair needed |
| letters: for each letter topic one or more commits, each with the round's number as Delta transaction | the round, \
without its letters | letters, but no round that records them yet | the same or the next broker tries again; a letter \
that exists is not written twice |

The files of ``cursor_ledger`` are written while ``ledgers`` is committed: until a commit names them they are nothing.
The delay index commits in the background and reads again what a crash lost. The query's streaming checkpoint is never
read.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.broker.applying.absorb import absorb
from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.clock import Instant, is_set_back
from pulsar_spark.broker.bundle.other_bundles import ask_others
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.chunks.chunk_walk import expire_incomplete, take_numbered
from pulsar_spark.broker.committing.commit import (
    RoundTables,
    commit_ledgers,
    commit_round,
    is_worth_a_commit,
    round_table,
)
from pulsar_spark.broker.committing.facts import topic_rows
from pulsar_spark.broker.committing.round_rows import COUNTED, RoundRows
from pulsar_spark.broker.committing.snapshots import is_snapshot_due
from pulsar_spark.broker.cursors.members import Members, end_waits
from pulsar_spark.broker.gathering.gather import gather_work
from pulsar_spark.broker.letters.projections import write_projections
from pulsar_spark.broker.planning.work import Outcome, Work
from pulsar_spark.broker.requests.drafts import RoundDraft, RoundResult
from pulsar_spark.broker.requests.executor import RequestExecutor
from pulsar_spark.broker.requests.moves import Moves
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.broker.requests.set_aside import set_aside
from pulsar_spark.broker.round.isolation import isolated, of_cursor, plan_isolated
from pulsar_spark.broker.upkeep.maintenance import maintain
from pulsar_spark.protocol.topics.numbering import NO_POSITION
from pulsar_spark.storage.cursor_ledger.set_aside import SetAside
from pulsar_spark.table_specs import LEDGERS


class Agenda(NamedTuple):
    """What a round is about, beside the bundle: ``requests`` to execute, in order, and ``later`` ones to keep, both up
    to commit ``requests_version``; ``broken`` units to set aside; and ``housekept``: tables, what was done, and to how
    many files or commits."""

    now: Instant
    requests: Sequence[Request]
    later: Sequence[Request]
    requests_version: int
    broken: Mapping[str, SetAside]
    housekept: Sequence[tuple[str, str, int]]


class Numbered(NamedTuple):
    """Topics whose logs moved, and their new rows of ``ledgers``."""

    topics: list[TopicState]
    ledgers: pa.Table


def run_round(
    bundle: Bundle, agenda: Agenda, plan: Callable[[Work], list[Outcome]], tables: RoundTables, limit: int
) -> tuple[RoundResult, list[Request]]:
    """Run a round, which is committed whole or not at all; returns its result, and requests for the next round. *limit*
    is the broker's limit of unacknowledged messages, 0 for none. After an error, read the bundle again."""
    # 1. Number what was published, note chunks, and forget deleted topics.
    draft = begin_round(bundle, agenda)
    numbered = number_published(bundle, draft, agenda.requests)
    draft.steps.end("number_us")
    # 2. Execute requests: consumers, policies and moved cursors change; requests about entries are noted for the plan.
    sent_on = execute_requests(bundle, draft, agenda)
    # 3. Let time pass: remove clients whose lease ended, pass trimmed entries, check expiry and quotas, retry letters.
    let_time_pass(bundle, draft, numbered.topics)
    draft.steps.end("requests_us")
    # 4. Gather entries that are acknowledged, given back or due, and candidates up to what permits allow.
    work = gather_work(bundle, draft)
    draft.steps.end("gather_us")
    # 5. Plan: acknowledge, give back, find blocked consumers, offer, line up, deal, sum up.
    outcomes = plan_isolated(plan, work) if work else []
    # 6. Take the outcomes into memory.
    rows = absorb(bundle, draft, work, outcomes, limit)
    draft.steps.end("plan_us")
    # 7. Write, in the order of the table above. A round without effect ends here.
    ask_others(bundle.layout, sent_on)
    consumed = max(bundle.requests_version, agenda.requests_version)
    if not is_worth_a_commit(bundle, draft, rows, consumed):
        bundle.requests_version = consumed
        return RoundResult(False, refusals=tuple(draft.refusals)), []
    is_snapshot = is_snapshot_due(bundle, draft.number)
    table = round_table(
        bundle,
        draft,
        rows,
        requests_version=consumed,
        broker_id=tables.broker_id,
        is_snapshot=is_snapshot,
        housekept=agenda.housekept,
        counts=counts_of(bundle, draft, rows, numbered, len(agenda.requests)),
    )
    with tables.cursor_ledger.writing(table) as files:
        commit_ledgers(tables, bundle, numbered.ledgers)
        bundle.index_new(numbered.topics)
    commit_round(tables, bundle, draft.number, table, files.result())
    bundle.requests_version = bundle.requests_committed = consumed
    bundle.last_write_us = draft.steps.end("write_us")
    bundle.changed.note(draft.cursors, (str(state.topic.name) for state in numbered.topics))
    # 8. After the commit: forget what no cursor needs, write letters.
    forget_unneeded(bundle, draft, numbered.topics, is_snapshot=is_snapshot)
    requests = write_projections(bundle, draft.number, bundle.now, rows.facts)
    return result_of(draft, rows), requests


def begin_round(bundle: Bundle, agenda: Agenda) -> RoundDraft:
    was_set_back, bundle.now = is_set_back(agenda.now, bundle.now), agenda.now
    draft = RoundDraft(bundle.round + 1, *agenda.now, was_set_back)
    draft.facts += bundle.outlived
    set_aside(bundle, draft, agenda.broken)
    return draft


def number_published(bundle: Bundle, draft: RoundDraft, requests: Sequence[Request]) -> Numbered:
    """Number new entries, at least of the topics that *requests* name; wake cursors that may deliver them."""
    Members(bundle, draft).drop_topics(bundle.scan())
    names = (request.topic for request in requests)
    topics, ledger_rows = bundle.number_new(names, partial(bundle.delayed_after, draft.wall))
    bundle.cursors.wake_due(bundle.now)
    if draft.was_set_back:
        bundle.cursors.wake_all()
    for state in topics:
        bundle.cursors.wake_for_entries(state.topic.topic_id)
        for cursor in bundle.cursors.of_topic(state.topic.topic_id) if state.has_chunks else ():
            with isolated(of_cursor(cursor)):
                bundle.attach_chunks(cursor)
    take_numbered(bundle, draft)
    return Numbered(topics, LEDGERS.rows(ledger_rows))


def execute_requests(bundle: Bundle, draft: RoundDraft, agenda: Agenda) -> list[Request]:
    """Execute requests or refuse them; returns those that another bundle's broker executes."""
    executor = RequestExecutor(bundle, draft, agenda.broken)
    executor.execute_all(agenda.requests)
    draft.facts += bundle.keep_waiting(agenda.later)
    return executor.sent_on


def let_time_pass(bundle: Bundle, draft: RoundDraft, topics: list[TopicState]) -> None:
    """Do what is due without a request; *topics* may have been trimmed."""
    Members(bundle, draft).end_leases(bundle.hear(draft.now))
    Moves(bundle, draft).pass_trimmed(topics)
    maintain(bundle, draft)
    expire_incomplete(bundle, draft)
    bundle.waiting_letters.try_due(draft.now)
    draft.facts += bundle.waiting_letters.facts()
    for state in topics:
        draft.facts += topic_rows(state, bundle.dues_dropped) + bundle.stopped_rows(state)
    end_waits(bundle, draft)


def forget_unneeded(bundle: Bundle, draft: RoundDraft, topics: list[TopicState], *, is_snapshot: bool) -> None:
    """Forget the due entries, chunks and runs that no cursor needs after the committed round."""
    bundle.drop_dues()
    bundle.forget_chunks(
        {str(state.topic.name) for state in topics} | {changes.cursor.topic for changes in draft.cursors.values()}
    )
    if is_snapshot:
        bundle.forget_runs()


def counts_of(bundle: Bundle, draft: RoundDraft, rows: RoundRows, numbered: Numbered, requests: int) -> dict[str, int]:
    """The column ``counts`` of the round's row."""
    entries = pc.filter(numbered.ledgers["entries"], pc.greater(numbered.ledgers["first_position"], NO_POSITION))
    found = {"published": pc.sum(entries, min_count=0).as_py(), "requests": requests}
    found |= {name: rows.counts[name] for name in COUNTED} | draft.steps
    if bundle.last_write_us is not None:
        found["write_us"] = bundle.last_write_us
    return found


def result_of(draft: RoundDraft, rows: RoundRows) -> RoundResult:
    letters = sum(fact["last"] - fact["first"] + 1 for fact in rows.facts if fact["kind"] == "letter")
    expired = sum(changes.expired for changes in draft.cursors.values())
    return RoundResult(
        True, rows.counts["delivered"], rows.acknowledged - expired, letters, expired, refusals=tuple(draft.refusals)
    )
