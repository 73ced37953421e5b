"""The plans of a round: transforms wired together, still lazy.

Acknowledge and give back, find who is blocked, offer, line up, deal, sum up: each step needs the previous one's result
for the whole cursor."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING
from pulsar_spark.transforms.account import count_given, take_account
from pulsar_spark.transforms.acknowledge import apply_acknowledgements
from pulsar_spark.transforms.blocked import count_unacked, find_blocked
from pulsar_spark.transforms.deal import deal_nothing, deal_out
from pulsar_spark.transforms.offer import offer_candidates
from pulsar_spark.transforms.redelivery import give_back, judge_returns
from pulsar_spark.transforms.turns import line_up

Plan = Callable[[DataFrame], DataFrame]
"""From rows of a round's inputs to rows of its result."""

_STAYING = pa.array([PENDING, ACKNOWLEDGED])


def plan_round(inputs: DataFrame) -> DataFrame:
    """The new state of every cursor in *inputs* and the facts about its consumers: rows of ``round_inputs.RESULT``.

    No step joins or reads twice, so the plan can run again after its leaf's rows have changed.
    """
    judged = count_unacked(judge_returns(apply_acknowledgements(inputs)))
    return take_account(count_given(deal_out(line_up(offer_candidates(find_blocked(give_back(judged)))))))


def plan_acknowledgements(inputs: DataFrame) -> DataFrame:
    """The plan for *inputs* that :func:`only_acknowledges`."""
    judged = count_unacked(judge_returns(apply_acknowledgements(inputs)))
    return take_account(deal_nothing(find_blocked(give_back(judged))))


def plan_for(rows: pa.Table) -> Plan:
    """The shortest plan for the input *rows*."""
    return plan_acknowledgements if only_acknowledges(rows) else plan_round


PLANS = (plan_round, plan_acknowledgements)


def only_acknowledges(rows: pa.Table) -> bool:
    """Whether nothing in the input *rows* can come back (pending with a due time) or be delivered (replay)."""
    times = (rows["due_time"], rows["return_time"])
    stays = pc.is_in(rows["status"], _STAYING)
    is_still = pc.or_(pc.fill_null(rows["is_acked"], False), pc.or_(stays, pc.is_null(rows["status"])))
    return (
        all(column.null_count == rows.num_rows for column in times)
        and pc.all(is_still, min_count=0).as_py()
        and not any(pc.any(pc.greater(pc.list_value_length(rows[name]), 0)).as_py() for name in ("left", "redelivered"))
    )
