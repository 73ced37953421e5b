"""Delays on Key_Shared: what waits holds back nobody, what is due is of its key like the rest."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "what waits goes to whoever owns its key then",
        source="5.4, 2.27",
        says="""
        Who owns the key when an entry comes due gets it, whoever met it first.""",
        table="""
        | s | publish           | requests                         | delivered | waits   |
        | 0 | 1=b@3 1=a@3 1=b@5 | A subscribe KeyShared; A flow 20 |           | 0@3 1@3 2@5 |
        | 1 |                   | B subscribe KeyShared; B flow 20 |           | 0@3 1@3 2@5 |
        | 3 |                   |                                  | A 1; B 0  | 2@5     |
        | 4 |                   | B ack 0; B close                 |           | 2@5     |
        | 5 |                   |                                  | A 2       | none    |
    """,
    ),
    Case(
        "one without permits holds back its own keys only",
        source="0.21, 2.31",
        says="""
        What is due of another's keys goes by; the rest comes in due order when there are permits.""",
        table="""
        | s | publish                 | requests                                                           | delivered | waits           |
        | 0 | 1=b@3 1=a@3 1=b@2 1=a@2 | A subscribe KeyShared; B subscribe KeyShared; A flow 9; B flow 2 |           | 0@3 1@3 2@2 3@2 |
        | 1 | 1=b 1=b                 |                                                                    | B 4-5     | 0@3 1@3 2@2 3@2 |
        | 2 |                         |                                                                    | A 3       | 0@3 1@3 2@2     |
        | 3 |                         |                                                                    | A 1       | 0@3 2@2         |
        | 4 |                         | B flow 1                                                           | B 2       | 0@3             |
        | 5 |                         | B flow 1                                                           | B 0       | none            |
    """,
    ),
    Case(
        "how far reading passes over what waits is no matter of what is due",
        source="2.39, isNormalReadAllowed: what came due is to be delivered again, and such reads have no limit",
        says="""
        What is due of another's keys, who takes nothing, goes by without counting; what is new behind it counts.""",
        table="""
        | s | publish     | requests                                                                                                                                                   | delivered | waits   |
        | 0 | 1=a@3 1=b@2 | policy key_shared_look_ahead_msg_in_replay_threshold_per_subscription 1; A subscribe KeyShared; B subscribe KeyShared; A flow 9 |           | 0@3 1@2 |
        | 3 |             |                                                                                                                                                            | A 0       | 1@2     |
        | 4 | 1=b 1=a     |                                                                                                                                                            |           | 1@2     |
        | 5 |             | B flow 2                                                                                                                                                   | A 3; B 1 2 | none |
    """,
    ),
    Case(
        "a key that drains keeps back what is due",
        source="2.41, 0.22",
        says="""
        While its previous owner holds an entry of a key, be it one that came due, nobody else gets any.""",
        table="""
        | s | publish             | requests                         | delivered | waits   |
        | 0 | 1=b@1 1=b@3 1=a     | A subscribe KeyShared; A flow 20 | A 2       | 0@1 1@3 |
        | 1 |                     |                                  | A 0       | 1@3     |
        | 2 | 1=b                 | B subscribe KeyShared; B flow 20 |           | 1@3     |
        | 3 |                     |                                  |           | 1@3     |
        | 4 |                     | A ack 0                          | B 1 3     | none    |
    """,
    ),
    Case(
        "what is to come again keeps back what is due later",
        source="0.22, 0.21",
        says="""
        Of those that came due, the ones that came due after it wait; so do all of them for one that had no deliver time.""",
        table="""
        | s | publish               | requests                         | delivered | waits       |
        | 0 | 1=b 1=b@2 1=b@1 1=a@2 | A subscribe KeyShared; A flow 20 | A 0       | 1@2 2@1 3@2 |
        | 1 |                       | A ack 0                          | A 2       | 1@2 3@2     |
        | 2 |                       | A nack 2 after 2                 | A 3       | 1@2         |
        | 4 |                       |                                  | A 1 2+1   | none        |
    """,
    ),
    Case(
        "order is not asked for",
        source="2.35",
        says="""
        With deliveries out of order allowed nothing is held back.""",
        table="""
        | s | publish         | requests                                        | delivered | waits |
        | 0 | 1=b@1 1=b@2 1=a | A subscribe KeyShared unordered true; A flow 20 | A 2       | 0@1 1@2 |
        | 1 |                 | B subscribe KeyShared unordered true; B flow 20 | B 0       | 1@2   |
        | 2 |                 | B close                                         | A 0-1     | none  |
    """,
    ),
    Case(
        "a hash that nobody owns",
        source="2.31, 2.29",
        says="""
        What is due waits for somebody to own it, and holds back nothing else.""",
        table="""
        | s | publish         | requests                                       | delivered | waits   |
        | 0 | 1=b@1 1=a@1 1=a | A subscribe KeyShared sticky 0-0; A flow 20    |           | 0@1 1@1 |
        | 1 |                 | B subscribe KeyShared sticky 1-65535; B flow 9 | B 0-2     | none    |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
