"""The rule of 3.2.3, which is an option: newcomers wait for mark-delete (2.32-2.34).

With A alone everything is its own. When B joins, b c e become B's and a d stay A's; when C joins, e becomes C's.
"""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CLASSIC = "policy subscription_key_shared_use_classic_persistent_implementation 1"

CASES = [
    Case(
        "a newcomer waits for mark-delete",
        source="2.32, 2.33, 2.34, golden k2",
        says="""
        It is given nothing from where it joined on until everything before is acknowledged, also of other keys.""",
        table=f"""
        | s | publish     | requests                                    | delivered |
        | 0 | 1=a 1=a     | {CLASSIC}; A subscribe KeyShared; A flow 20 | A 0-1     |
        | 1 | 1=b 1=a 1=c | B subscribe KeyShared; B flow 20            | A 3       |
        | 2 |             | A ack 1                                     |           |
        | 3 |             | A ack 0                                     |           |
        | 4 |             |                                             | B 2 4     |
    """,
    ),
    Case(
        "a newcomer that need not wait",
        source="2.32, golden k2",
        says="""
        Where everything that was handed out is acknowledged, a newcomer gets its keys at once.""",
        table=f"""
        | s | publish | requests                                    | delivered |
        | 0 | 1=a 1=b | {CLASSIC}; A subscribe KeyShared; A flow 20 | A 0-1     |
        | 1 |         | A ack 0-1                                   |           |
        | 2 | 1=b 1=a | B subscribe KeyShared; B flow 20            | A 3; B 2  |
    """,
    ),
    Case(
        "one entry is enough to wait",
        source="2.32, golden k2",
        says="""
        A single entry that is out, of whatever key, makes a newcomer wait.""",
        table=f"""
        | s | publish | requests                                    | delivered |
        | 0 | 1=a     | {CLASSIC}; A subscribe KeyShared; A flow 20 | A 0       |
        | 1 | 1=b     | B subscribe KeyShared; B flow 20            |           |
        | 2 |         | A ack 0                                     |           |
        | 3 |         |                                             | B 1       |
    """,
    ),
    Case(
        "what was delayed before it joined",
        source="2.33, 5.1",
        says="""
        An entry that comes due is given to a newcomer if it lies before where that joined, as those do that come again.""",
        table=f"""
        | s | publish       | requests                                    | delivered |
        | 0 | 1=a 1=b@2 1=a | {CLASSIC}; A subscribe KeyShared; A flow 20 | A 0 2     |
        | 1 | 1=b           | B subscribe KeyShared; B flow 20            |           |
        | 2 |               |                                             | B 1       |
        | 3 |               | A ack 0; A ack 2; B ack 1                   |           |
        | 4 |               |                                             | B 3       |
    """,
    ),
    Case(
        "a newcomer joins after what was handed out",
        source="0.35, 2.32",
        says="""
        e was read and passed over while B had no permits. C, whose e is now, joined before it and waits for it; in 3.2.3 e had been read, so C got it.""",
        table=f"""
        | s | publish     | requests                                                               | delivered |
        | 0 | 1=b 1=a 1=e | {CLASSIC}; A subscribe KeyShared; B subscribe KeyShared; A flow 9      | A 1       |
        | 1 |             | C subscribe KeyShared; C flow 9                                        |           |
        | 2 |             | A ack 1; B flow 9                                                      | B 0       |
        | 3 |             | B ack 0                                                                |           |
        | 4 |             |                                                                        | C 2       |
    """,
    ),
    Case(
        "several newcomers wait for the first",
        source="2.33, 2.34, golden k2",
        says="""
        The place of the first of them holds for all; each goes on when mark-delete has come to its own.""",
        table=f"""
        | s | publish     | requests                                    | delivered |
        | 0 | 1=a         | {CLASSIC}; A subscribe KeyShared; A flow 20 | A 0       |
        | 1 | 1=b 1=a 1=e | B subscribe KeyShared; B flow 20            | A 2       |
        | 2 | 1=e 1=b     | C subscribe KeyShared; C flow 20            |           |
        | 3 |             | A ack 0                                     |           |
        | 4 |             |                                             | B 1 5     |
        | 5 |             | B ack 1                                     |           |
        | 6 |             | A ack 2                                     |           |
        | 7 |             |                                             | C 3-4     |
    """,
    ),
    Case(
        "alone again",
        source="2.34",
        says="""
        A newcomer that is the only one left waits for nobody.""",
        table=f"""
        | s | publish | requests                                    | delivered |
        | 0 | 1=a     | {CLASSIC}; A subscribe KeyShared; A flow 20 | A 0       |
        | 1 | 1=b     | B subscribe KeyShared; B flow 20            |           |
        | 2 |         | A close                                     | B 0-1     |
    """,
    ),
    Case(
        "out of order by the old rule",
        source="2.35, golden k2",
        says="""
        Where the consumers allow it a newcomer does not wait.""",
        table=f"""
        | s | publish | requests                                                  | delivered |
        | 0 | 1=b     | {CLASSIC}; A subscribe KeyShared unordered true; A flow 9 | A 0       |
        | 1 | 1=b     | B subscribe KeyShared unordered true; B flow 20           | B 1       |
    """,
    ),
    Case(
        "the rule holds while consumers are connected",
        source="2.4",
        says="""
        A policy that is set meanwhile holds when all have left.""",
        table=f"""
        | s | publish | requests                                    | delivered |
        | 0 | 1=a     | A subscribe KeyShared; A flow 20; {CLASSIC} | A 0       |
        | 1 | 1=b     | B subscribe KeyShared; B flow 20            | B 1       |
        | 2 |         | A close; B close                            |           |
        | 3 |         | A subscribe KeyShared; A flow 20            | A 0-1     |
        | 4 | 1=b     | B subscribe KeyShared; B flow 20            |           |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
