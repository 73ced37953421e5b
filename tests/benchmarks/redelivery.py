"""Many messages given back one by one: negative acknowledgements in one round, and the dead letters that come of them.

Every second message of a backlog is named, so that no two adjoin. First they come back once more; then, their attempts
used up, they die, and the round that says so writes their letters.
"""

from collections.abc import Iterator

from pulsar_spark.protocol.redelivery.letters import dead_letter_topic
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.table_specs import REQUESTS
from tests.benchmarks.bench import Bench, seconds
from tests.benchmarks.figures import SECONDS, Budget, Figure
from tests.benchmarks.round_rig import PERMITS, RoundRig
from tests.support.requests import On

FAMILY = "redelivery"
PUBLISH = 100_000
SECONDS_A_MESSAGE = 4.0 / 100_000


def measure(bench: Bench) -> Iterator[Figure]:
    messages = bench.few(5_000, 100_000)
    given_back, died = [], []
    for turn in range(3):
        bench.say(
            f"{messages:,} negative acknowledgements and dead letters, turn {turn + 1}, of which the first only "
            "warms up"
        )
        rig = RoundRig(bench.planner, bench.new_folder(f"redelivery-{turn}"))
        topic = rig.create_topic("t")
        on = On(topic)
        rig.ask([on.subscribe("c", lease_ms=86_400_000, max_redeliver_count=1), on.flow("c", PERMITS)])
        for _ in range(0, 2 * messages, PUBLISH):
            rig.publish(topic, min(PUBLISH, 2 * messages))
        rig.ask([])
        returns = REQUESTS.rows([on.negative_ack("c", position) for position in range(0, 2 * messages, 2)])
        given_back.append(seconds(lambda: rig.ask(returns)))
        died.append(seconds(lambda: rig.ask(returns)))
        letters = _letters(rig, topic)
        if letters != messages:
            raise AssertionError(f"{letters} letters, not {messages}")
    budget = Budget(messages * SECONDS_A_MESSAGE)
    again = f"round: {messages:,} single negative acknowledgements, delivered again"
    yield Figure(FAMILY, again, SECONDS, given_back[1:], budget=budget)
    yield Figure(
        FAMILY, f"round: {messages:,} single messages die, with their letters", SECONDS, died[1:], budget=budget
    )


def _letters(rig: RoundRig, topic: str) -> int:
    log = TableLog(rig.layout.topic(parse_topic_name(dead_letter_topic(topic, "s"))))
    return sum(file.rows for commit in log.commits(0) for file in commit.added)
