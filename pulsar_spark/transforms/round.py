"""The plans of a round: transforms wired together, still lazy.

Each step needs what the one before found of the whole cursor, so they follow each other in this order: what requests
acknowledge and give back cuts the state into segments, who has too much unacknowledged is found, what may go out is
offered in order, the consumers line up beside it with the room they have, one is dealt out over the other, and what
that did to consumers and cursors is summed up.

Many rounds do nothing but acknowledge: nothing comes back, and nothing is there to be offered. Steps that would have no
input are left out of their plan, which takes a third of the time over what a job costs anyway; the others are the same.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pulsar_spark.protocol.cursor import ACKNOWLEDGED, PENDING
from pulsar_spark.transforms.account import count_given, take_account
from pulsar_spark.transforms.acknowledge import fold_requests
from pulsar_spark.transforms.blocked import find_blocked
from pulsar_spark.transforms.deal import deal_nothing, deal_out
from pulsar_spark.transforms.offer import offer_candidates
from pulsar_spark.transforms.redelivery import give_back
from pulsar_spark.transforms.turns import line_up

_ENTRY = ("status", "consumer_id", "delivery_round", "redelivery_count", "batch_size")
_WHOLE = {
    "cursor": ("limit", "unacked_elsewhere", "is_blocked"),
    "range": _ENTRY,
    "ack": (),
    "consumer": ("consumer_id", "lap", "permits", "limit", "unacked_elsewhere", "is_blocked"),
}
"""The same of a round in which no entry is acknowledged in part."""
ACKNOWLEDGING = _WHOLE | {"range": (*_ENTRY, "ack_set"), "ack_set": ("ack_set",)}
"""Kinds of rows that a round consists of that does nothing but acknowledge, and what is asked of them beside their
positions."""

Plan = Callable[[DataFrame], DataFrame]
"""Rows of a round's inputs in, rows of its result out."""

_STAYING = pa.array([PENDING, ACKNOWLEDGED])


def plan_round(inputs: DataFrame) -> DataFrame:
    """New state of every cursor among *inputs*, and what became of its consumers: rows of ``round_inputs.RESULT``.

    No step joins or reads twice, so the plan of a one-partition frame has no exchange and may be executed again when
    its leaf's rows have changed.
    """
    segments = find_blocked(give_back(fold_requests(inputs)))
    return take_account(count_given(deal_out(line_up(offer_candidates(segments)))))


def plan_acknowledgements(inputs: DataFrame) -> DataFrame:
    """The same of *inputs* that :func:`only_acknowledges`."""
    return take_account(deal_nothing(find_blocked(fold_requests(inputs, kinds=ACKNOWLEDGING))))


def plan_whole_acknowledgements(inputs: DataFrame) -> DataFrame:
    """The same of those in which no entry is, or has been, acknowledged in part."""
    return take_account(deal_nothing(find_blocked(fold_requests(inputs, kinds=_WHOLE))))


def plan_for(rows: pa.Table) -> Plan:
    """The shortest plan for the input *rows*."""
    if not only_acknowledges(rows):
        return plan_round
    return plan_whole_acknowledgements if rows["ack_set"].null_count == rows.num_rows else plan_acknowledgements


PLANS = (plan_round, plan_acknowledgements, plan_whole_acknowledgements)


def only_acknowledges(rows: pa.Table) -> bool:
    """Is there nothing among the input *rows* that could come back or go out? Said of what there is, whatever becomes
    of it: pending entries with a due time may come back, replay may go out."""
    if not set(pc.unique(rows["kind"]).to_pylist()) <= ACKNOWLEDGING.keys():
        return False
    return (
        rows["due_time"].null_count == rows.num_rows
        and pc.all(pc.is_in(rows["status"].drop_null(), _STAYING), min_count=0).as_py()
        and not any(pc.any(pc.greater(pc.list_value_length(rows[name]), 0)).as_py() for name in ("left", "redelivered"))
    )
