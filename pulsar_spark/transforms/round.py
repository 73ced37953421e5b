"""The plans of a round: transforms wired together, still lazy.

Acknowledge and give back, find who is blocked, offer, line up, deal, sum up: each step needs the previous one's result
for the whole cursor. Plans for rounds that only acknowledge leave out steps without input.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING
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
"""Columns needed when no entry is partly acknowledged."""
ACKNOWLEDGING = _WHOLE | {"range": (*_ENTRY, "ack_set"), "ack_set": ("ack_set",)}
"""The kinds of rows in a round that only acknowledges, and their columns beside the positions."""

Plan = Callable[[DataFrame], DataFrame]
"""From rows of a round's inputs to rows of its result."""

_STAYING = pa.array([PENDING, ACKNOWLEDGED])


def plan_round(inputs: DataFrame) -> DataFrame:
    """The new state of every cursor in *inputs* and the facts about its consumers: rows of ``round_inputs.RESULT``.

    No step joins or reads twice, so the plan can run again after its leaf's rows have changed.
    """
    segments = find_blocked(give_back(fold_requests(inputs)))
    return take_account(count_given(deal_out(line_up(offer_candidates(segments)))))


def plan_acknowledgements(inputs: DataFrame) -> DataFrame:
    """The plan for *inputs* that :func:`only_acknowledges`."""
    return take_account(deal_nothing(find_blocked(fold_requests(inputs, kinds=ACKNOWLEDGING))))


def plan_whole_acknowledgements(inputs: DataFrame) -> DataFrame:
    """The plan for such *inputs* in which no entry is partly acknowledged."""
    return take_account(deal_nothing(find_blocked(fold_requests(inputs, kinds=_WHOLE))))


def plan_for(rows: pa.Table) -> Plan:
    """The shortest plan for the input *rows*."""
    if not only_acknowledges(rows):
        return plan_round
    return plan_whole_acknowledgements if rows["ack_set"].null_count == rows.num_rows else plan_acknowledgements


PLANS = (plan_round, plan_acknowledgements, plan_whole_acknowledgements)


def only_acknowledges(rows: pa.Table) -> bool:
    """Whether nothing in the input *rows* can come back (pending with a due time) or go out (replay)."""
    if not set(pc.unique(rows["kind"]).to_pylist()) <= ACKNOWLEDGING.keys():
        return False
    return (
        rows["due_time"].null_count == rows.num_rows
        and pc.all(pc.is_in(rows["status"].drop_null(), _STAYING), min_count=0).as_py()
        and not any(pc.any(pc.greater(pc.list_value_length(rows[name]), 0)).as_py() for name in ("left", "redelivered"))
    )
