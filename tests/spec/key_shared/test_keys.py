"""Which hash an entry goes by. The consumers ask for the lower and the upper half of the slots; of the keys named here
``a`` lies in the lower one (slot 27058), ``c`` in the upper one (54879), and so does NONE_KEY (48803)."""

import pytest

from tests.spec.history import check
from tests.spec.table import Case

CASES = [
    Case(
        "the ordering key goes before the key",
        source="2.21, golden a2",
        says="""
        The hash is that of the ordering key where there is one, else of the key.""",
        table="""
        | s | publish                  | requests                                                                                               | delivered        |
        | 0 | 1=a 1=c 1=a^c 1=c^a 1=^a | lo subscribe KeyShared sticky 0-32767; hi subscribe KeyShared sticky 32768-65535; lo flow 9; hi flow 9 | lo 0 3 4; hi 1-2 |
    """,
    ),
    Case(
        "an empty key is a key",
        source="2.21",
        says="""
        An empty key has hash 0, and so has an empty ordering key, which still goes before the key.""",
        table="""
        | s | publish    | requests                                                                                       | delivered |
        | 0 | 1= 1=c^ 1= | lo subscribe KeyShared sticky 0-0; hi subscribe KeyShared sticky 1-65535; lo flow 9; hi flow 9 | lo 0-2    |
    """,
    ),
    Case(
        "without a key",
        source="2.21",
        says="""
        Entries without a key, and those with bad base64, share the hash of NONE_KEY.""",
        table="""
        | s | publish                    | requests                                                                                                                                                     | delivered |
        | 0 | 1 1=NONE_KEY 1=base64:?! 2 | lo subscribe KeyShared sticky 0-48802; it subscribe KeyShared sticky 48803-48803; hi subscribe KeyShared sticky 48804-65535; lo flow 9; it flow 9; hi flow 9 | it 0-3    |
    """,
    ),
    Case(
        "keys of bytes",
        source="2.21",
        says="""
        A key that was sent as base64 is decoded before it is hashed: AQI= is slot 26238 then, and 44019 as text.""",
        table="""
        | s | publish              | requests                                                                                               | delivered  |
        | 0 | 1=base64:AQI= 1=AQI= | lo subscribe KeyShared sticky 0-32767; hi subscribe KeyShared sticky 32768-65535; lo flow 9; hi flow 9 | lo 0; hi 1 |
    """,
    ),
    Case(
        "the sign bit is cleared",
        source="0.1, 2.23, golden a1",
        says="""
        The key Order-3459134 has hash 964695987, which is slot 6067 of 65536.""",
        table="""
        | s | publish         | requests                                                                                                               | delivered |
        | 0 | 1=Order-3459134 | it subscribe KeyShared sticky 6067-6067; others subscribe KeyShared sticky 0-6066,6068-65535; it flow 9; others flow 9 | it 0      |
    """,
    ),
    Case(
        "a batch goes by its first message",
        source="2.22",
        says="""
        A batch has one hash, that of its first message's key, and goes out whole.""",
        table="""
        | s | publish             | requests                                                                                               | delivered      | unacked    |
        | 0 | 3=a,c,c 2=c,a 2 2=a | lo subscribe KeyShared sticky 0-32767; hi subscribe KeyShared sticky 32768-65535; lo flow 9; hi flow 9 | lo 0 3; hi 1-2 | lo 5; hi 4 |
    """,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, history):
    check(case, history[case.name])
