"""The plan of a round: transforms wired together, still lazy."""

from pyspark.sql import DataFrame

from pulsar_spark.transforms.acknowledge import fold_requests
from pulsar_spark.transforms.dispatch import deal_out, line_up, offer_candidates
from pulsar_spark.transforms.redelivery import give_back
from pulsar_spark.transforms.round_inputs import STATE


def plan_round(inputs: DataFrame) -> DataFrame:
    """New state of every cursor among *inputs* (transforms.round_inputs): acknowledge, give back, offer, line up, deal
    out.

    No step joins or reads twice, so the plan of a one-partition frame has no exchange and may be executed again when
    its leaf's rows have changed.
    """
    segments = give_back(fold_requests(inputs))
    return deal_out(line_up(offer_candidates(segments))).select(*STATE)
