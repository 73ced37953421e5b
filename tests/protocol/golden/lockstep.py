"""Recorded cases as topics of one broker: each round takes the next requests of all of them, so that a broker whose
rounds are dear plays many cases in the rounds of the longest, and shows that they do not leak into each other."""

from collections.abc import Callable, Generator
from typing import NamedTuple

from tests.support.model_cursor import Delivery

NOW = 1_000


class Answer(NamedTuple):
    """What a round did for one case: its deliveries, and the names of the errors its requests were refused with."""

    deliveries: list[Delivery]
    refusals: list[str]


Player = Generator[list[dict] | int, Answer, object]
"""Yields the requests of each of its rounds, or what the clock says from now on, and is given the answer. All cases of
a broker have one clock, so one that sets it is played alone."""


def topic_of(number: int) -> str:
    """Where the case of that number is played."""
    return f"persistent://public/default/case-{number}"


def play(broker, player_of: Callable[..., Player], cases: list) -> list[object]:
    """What ``player_of(broker, case, topic)`` returns for each case; the error of a case that asserted in vain."""
    results: list[object] = [None] * len(cases)
    players, asked, now = {}, {}, NOW
    for number, case in enumerate(cases):
        broker.create_topic(topic_of(number))
        players[number] = player_of(broker, case, topic_of(number))
    answers: dict[int, Answer | None] = dict.fromkeys(players)
    while answers:
        asked = {}
        for number, answer in answers.items():
            try:
                asked[number] = players[number].send(answer)
            except StopIteration as end:
                results[number] = end.value
            except AssertionError as failed:
                results[number] = failed
        for number in [number for number, said in asked.items() if isinstance(said, int)]:
            now, asked[number] = asked[number], []
        answers = _round(broker, asked, now) if asked else {}
    return results


def _round(broker, asked: dict[int, list[dict]], now: int) -> dict[int, Answer]:
    result = broker.round([request for requests in asked.values() for request in requests], now)
    answers = {}
    for number, requests in asked.items():
        ids = {request["request_id"] for request in requests}
        answers[number] = Answer(
            [delivery for delivery in result["deliveries"] if delivery.topic == topic_of(number)],
            [reply.error for reply in result["replies"] if reply.request_id in ids and reply.error],
        )
    return answers
