"""The plan of a round: transforms wired together, still lazy.

Each step needs what the one before found of the whole cursor, so they follow each other in this order: what requests
acknowledge and give back cuts the state into segments, what may go out of them is offered in order, the consumers line
up beside it with the room they have, one is dealt out over the other, and what that did to consumers and cursors is
summed up.
"""

from pyspark.sql import DataFrame

from pulsar_spark.transforms.account import take_account
from pulsar_spark.transforms.acknowledge import fold_requests
from pulsar_spark.transforms.deal import deal_out
from pulsar_spark.transforms.offer import offer_candidates
from pulsar_spark.transforms.redelivery import give_back
from pulsar_spark.transforms.turns import line_up


def plan_round(inputs: DataFrame) -> DataFrame:
    """New state of every cursor among *inputs*, and what became of its consumers: rows of ``round_inputs.RESULT``.

    No step joins or reads twice, so the plan of a one-partition frame has no exchange and may be executed again when
    its leaf's rows have changed.
    """
    segments = give_back(fold_requests(inputs))
    return take_account(deal_out(line_up(offer_candidates(segments))))
