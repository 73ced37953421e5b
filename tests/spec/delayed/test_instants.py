"""Deliver times that are odd, and clocks that are: never early, never stuck."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "in the past",
        source="5.7, issue 11: what bad input gets",
        says="""
        A deliver time that has come is none: at once, in its place.""",
        table="""
        | s | publish         | requests                     | delivered | waits | permits |
        | 0 |                 | A subscribe Shared; A flow 9 |           | none  | A 9     |
        | 5 | 1 1@2 1 1@5 1@6 |                              | A 0-3     | 4@6   | A 5     |
        | 6 |                 |                              | A 4       | none  | A 4     |
    """,
    ),
    Case(
        "before 1970",
        source="5.2, issue 11: what bad input gets",
        says="""
        Likewise, and not by its time before what is due later but was there first.""",
        table="""
        | s | publish              | requests                     | delivered | waits | permits |
        | 0 | 1 1@-5 1@0 1@-99999999999 | A subscribe Shared; A flow 2 | A 0-1 | none | A 0  |
        | 1 |                      | A flow 9                     | A 2-3     | none  | A 7     |
    """,
    ),
    Case(
        "in the year 10000",
        source="issue 11: what bad input gets",
        says="""
        Years that calendars do not know are waited for like others, up to the last instant that a column of the topic holds.""",
        table="""
        | s | publish                                    | requests                     | delivered | waits                        | mark-delete | backlog | delayed |
        | 0 | 1@253402300800 1@9223372036854 1@253402300799 1 | A subscribe Shared; A flow 9 | A 3  | 0@253402300800 1@9223372036854 2@253402300799 | -1 | 4 | 3 |
        | 1 |                                            | A ack 3; cancel 1            |           | 0@253402300800 2@253402300799 | -1         | 2       | 2       |
        | 2 |                                            | reschedule 0 9223372036854   |           | 0@9223372036854 2@253402300799 | -1        | 2       | 2       |
        | 3 |                                            | A close; B subscribe Exclusive; B flow 9 | B 0 2 | none                 | -1          | 2       | 0       |
    """,
    ),
    Case(
        "a moment before the broker looks",
        source="0.21, 5.7",
        says="""
        Of one publish, what has come due by the time the broker sees it goes by position, and before what comes due then.""",
        table="""
        | s | publish             | requests                     | delivered | waits   |
        | 0 |                     | create Earliest              |           | none    |
        | 3 | 1@4 1@3 1 1@2 1@5   |                              |           | none    |
        | 4 |                     | A subscribe Shared; A flow 2 | A 0-1     | 4@5     |
        | 5 |                     | A flow 3                     | A 2-4     | none    |
    """,
    ),
    Case(
        "the clock is set back",
        source="design 10, issue 11: what bad input gets",
        says="""
        What was due is delivered when it is due by the clock as it is now; what is published then waits for its deliver time as well.""",
        table="""
        | s | publish | requests                     | delivered | waits   | mark-delete |
        | 0 | 1@6 1   | A subscribe Shared; A flow 9 | A 1       | 0@6     | -1          |
        | 5 |         | A ack 1                      |           | 0@6     | -1          |
        | 2 | 1@4 1@7 |                              |           | 0@6 2@4 3@7 | -1      |
        | 3 |         |                              |           | 0@6 2@4 3@7 | -1      |
        | 4 |         |                              | A 2       | 0@6 3@7 | -1          |
        | 6 |         | A ack 2                      | A 0       | 3@7     | -1          |
        | 7 |         | A ack 0                      | A 3       | none    | 2           |
    """,
    ),
    Case(
        "the clock was ahead",
        source="design 10, issue 11: what bad input gets",
        says="""
        What had come due by a clock that was ahead, and that nobody got, waits again; what was delivered stays delivered.""",
        table="""
        | s  | publish     | requests                     | delivered | waits   |
        | 0  | 1@5 1@6 1@90 | A subscribe Shared; A flow 1 |          | 0@5 1@6 2@90 |
        | 50 |             |                              | A 0       | 1@6 2@90 |
        | 3  |             | A flow 9                     |           | 1@6 2@90 |
        | 4  | 1@5         |                              |           | 1@6 2@90 3@5 |
        | 5  |             |                              | A 3       | 1@6 2@90 |
        | 6  |             |                              | A 1       | 2@90    |
        | 90 |             |                              | A 2       | none    |
    """,
    ),
    Case(
        "the clock is set back over a seek",
        source="design 10, 3.26",
        says="""
        Who begins anew while the clock is behind what it was waits for all that is to come by it.""",
        table="""
        | s  | publish     | requests                     | delivered | reset | waits   |
        | 0  | 1@5 1@9 1   | A subscribe Shared; A flow 9 | A 2       |       | 0@5 1@9 |
        | 50 |             |                              | A 0-1     |       | none    |
        | 3  |             | A seek 0; A flow 9           | A 2       | A     | 0@5 1@9 |
        | 5  |             |                              | A 0       |       | 1@9     |
        | 9  |             |                              | A 1       |       | none    |
    """,
    ),
]

OPTIONS = {"max_unacked_messages_per_broker": 0}
"""Each case has a broker of its own, and with it a clock of its own."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
