"""Does a round take longer the more rounds this broker has committed before it?

The earlier rounds are real ones that only set a policy, and each also adds a row to ``ledgers``, of a topic that is
gone, as rounds with new messages do. Brokers of all ages stand side by side and their rounds are taken in turns.
"""

from collections.abc import Iterator

from pulsar_spark.table_specs import LEDGERS
from tests.benchmarks.bench import Bench
from tests.benchmarks.figures import Figure
from tests.benchmarks.growth import Built, measure_growth
from tests.benchmarks.round_rig import RoundRig
from tests.support.requests import On

_GONE = dict(
    topic="persistent://public/default/gone",
    topic_id="gone",
    partition=-1,
    ledger_id=1,
    publish_id="gone",
    first_entry_id=0,
    first_position=0,
    entries=1,
    batch_size=1,
)


def measure(bench: Bench) -> Iterator[Figure]:
    def build(age: int) -> Built:
        rig = RoundRig(bench.planner, bench.new_folder(f"age-{age}"))
        topic = rig.create_topic("t")
        subscribed = rig.subscribe([topic])
        rounds, row = rig.rounds, LEDGERS.rows([_GONE])
        for _ in range(age):
            rig.ask([On(topic).policy("max_consumers_per_subscription", 0)])
            rounds.bundle.ledgers_version = rounds.tables.ledgers.append_fenced(row, rounds.bundle.ledgers_version)
        return rig, topic, subscribed

    return measure_growth(
        bench, "age", "{:,} earlier rounds of this broker", [1, 300] + ([] if bench.is_quick else [2000]), build
    )
