"""``python -m tests.jobs.notebook_ends ROOT HOW``: a notebook's process, from its first cell to an end that nobody
prepared.

HOW is "falls_off": the last cell ends while a broker and a consumer run; "raises": it raises inside the consumer's
block; "stops_spark": Spark is stopped before both.
"""

import sys
import threading
import time

from pulsar_spark.broker.runner import Broker
from pulsar_spark.cli.logs import set_up_logging
from pulsar_spark.frames import consume, publish
from pulsar_spark.storage.session import spark_session


def run(root: str, how: str) -> None:
    set_up_logging("info")
    spark = spark_session()
    for _ in range(2 if how == "falls_off" else 1):  # the cell is run again
        broker = Broker(spark_session(for_rounds=True), root)
        broker.start()
    publish(spark.range(3000).selectExpr("cast(id as string) payload"), root, "orders")
    called = threading.Event()

    def count(messages, delivery):
        called.set()
        time.sleep(0.5)
        print("counted", messages.count(), flush=True)

    def cell(function):
        """May be run again: it names its consumer."""
        return consume(spark, root, "orders", "s", function, consumer_name="cell", max_messages=100)

    cell(lambda messages, delivery: time.sleep(0.5))
    consumption = cell(count)
    assert called.wait(180)
    if how == "raises":
        with consumption:
            raise KeyError("the user's own")
    if how == "stops_spark":
        spark.stop()
        try:
            consumption.await_termination(180)
        except Exception as error:
            print("ended by", type(error).__name__, flush=True)
        with consumption:
            print("the block", flush=True)
        broker.stop()
        broker.wait()
    print("last cell", flush=True)


if __name__ == "__main__":
    run(*sys.argv[1:])
