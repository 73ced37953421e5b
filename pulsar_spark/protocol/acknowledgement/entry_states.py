"""The states of an entry on a subscription, and every transition between them, as data.

Events of a round come in this order: seek, acknowledgements, returns, read, delivery. Cumulative acknowledgement, skip,
clear backlog, time to live, trimming and putting off (0.27, 4.23) acknowledge entries. Redelivery counts (0.20) and
batch indexes (0.23) are apart. A chunked message is the entry that completes it (1.11)."""

from typing import NamedTuple

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, DEAD, PENDING, REPLAY, UNREAD

STATES = {
    UNREAD: "not delivered since the subscription started, or since a seek to this entry or an earlier one; an entry "
    "that waits for its deliver time is unread too",
    PENDING: "delivered to a consumer that has neither acknowledged nor returned it",
    REPLAY: "waits for redelivery, which comes before any unread entry, but not before its due time if it has one",
    DEAD: "returned too often; the same round orders its dead letters, so no entry stays dead",
    ACKNOWLEDGED: "done; once mark-delete has passed it, no range contains it",
}

DELIVER, WAIT = "deliver", "wait"
ACKNOWLEDGE, ACKNOWLEDGE_PART = "acknowledge", "acknowledge a part"
NEGATIVE_ACKNOWLEDGE, REDELIVER, RELEASE = "negative acknowledge", "redeliver", "release"
ORDER_LETTERS, SEEK = "order letters", "seek"
RESCHEDULE, WITHHOLD = "reschedule", "withhold"

EVENTS = {
    SEEK: "the cursor is moved to a position",
    ACKNOWLEDGE: "the whole entry is acknowledged",
    ACKNOWLEDGE_PART: "some indexes of a batch are acknowledged",
    NEGATIVE_ACKNOWLEDGE: "a consumer asks for the entry again, at once or later",
    REDELIVER: "a counted return: the delay of a negative acknowledgement ended, or the consumer requested all "
    "its entries again",
    RELEASE: "an uncounted return: its consumer left, is no longer active, or returned it unseen; on Exclusive and "
    "Failover also because another entry was returned",
    ORDER_LETTERS: "the round records a dead letter for each of its unacknowledged messages",
    WAIT: "a round reads it before its deliver time although it is not in the delay index, because the clock was set "
    "back or an earlier release numbered it",
    RESCHEDULE: "it waits for its deliver time, which is changed",
    WITHHOLD: "a consumer dropped this chunked message because too many were incomplete: the message stays with that "
    "consumer and is not sent",
    DELIVER: "the round gives it to a consumer",
}

IS_BEFORE_TARGET, IS_NOT_BEFORE_TARGET = "it lies before the position", "it does not lie before the position"
LEAVES_NONE, LEAVES_SOME = "no index is left", "some index is left"
BY_HOLDER, BY_OTHERS = "by the consumer that holds it; it comes again after the delay", "by another consumer"
MAY_COME_AGAIN, IS_TOO_OFTEN = "the dead letter policy allows one more delivery", "the dead letter policy does not"
IS_SHARED = "the subscription is Shared or Key_Shared"
IS_DUE = "its due time has come, or it has none"
ALWAYS = ""


class Transition(NamedTuple):
    """An *event* moves an entry from *state* to *next_state* if *guard* is true; *rule* is its number in the
    semantics."""

    state: str
    event: str
    guard: str
    next_state: str
    rule: str


TRANSITIONS = (
    Transition(UNREAD, SEEK, IS_BEFORE_TARGET, ACKNOWLEDGED, "3.26"),
    Transition(UNREAD, SEEK, IS_NOT_BEFORE_TARGET, UNREAD, "3.26"),
    Transition(UNREAD, ACKNOWLEDGE, ALWAYS, ACKNOWLEDGED, "3.11, 3.16"),
    Transition(UNREAD, ACKNOWLEDGE_PART, LEAVES_NONE, ACKNOWLEDGED, "3.20"),
    Transition(UNREAD, ACKNOWLEDGE_PART, LEAVES_SOME, REPLAY, "3.20, 0.23"),
    Transition(UNREAD, NEGATIVE_ACKNOWLEDGE, BY_OTHERS, UNREAD, "4.21"),
    Transition(UNREAD, WAIT, IS_SHARED, REPLAY, "2.6, 4.9, 0.21"),
    Transition(UNREAD, RESCHEDULE, ALWAYS, REPLAY, "0.33"),
    Transition(UNREAD, WITHHOLD, ALWAYS, PENDING, "1.14"),
    Transition(UNREAD, DELIVER, IS_DUE, PENDING, "4.7"),
    Transition(PENDING, SEEK, IS_BEFORE_TARGET, ACKNOWLEDGED, "3.26"),
    Transition(PENDING, SEEK, IS_NOT_BEFORE_TARGET, UNREAD, "3.26"),
    Transition(PENDING, ACKNOWLEDGE, ALWAYS, ACKNOWLEDGED, "3.11, 3.12"),
    Transition(PENDING, ACKNOWLEDGE_PART, LEAVES_NONE, ACKNOWLEDGED, "3.20"),
    Transition(PENDING, ACKNOWLEDGE_PART, LEAVES_SOME, PENDING, "3.12, 3.20"),
    Transition(PENDING, NEGATIVE_ACKNOWLEDGE, BY_HOLDER, PENDING, "4.15, 0.23"),
    Transition(PENDING, NEGATIVE_ACKNOWLEDGE, BY_OTHERS, PENDING, "4.21"),
    Transition(PENDING, REDELIVER, MAY_COME_AGAIN, REPLAY, "4.21, 2.12"),
    Transition(PENDING, REDELIVER, IS_TOO_OFTEN, DEAD, "4.26"),
    Transition(PENDING, RELEASE, ALWAYS, REPLAY, "2.11, 2.12, 2.19, 0.20"),
    Transition(REPLAY, SEEK, IS_BEFORE_TARGET, ACKNOWLEDGED, "3.26"),
    Transition(REPLAY, SEEK, IS_NOT_BEFORE_TARGET, UNREAD, "3.26"),
    Transition(REPLAY, ACKNOWLEDGE, ALWAYS, ACKNOWLEDGED, "3.16"),
    Transition(REPLAY, ACKNOWLEDGE_PART, LEAVES_NONE, ACKNOWLEDGED, "3.20"),
    Transition(REPLAY, ACKNOWLEDGE_PART, LEAVES_SOME, REPLAY, "3.20"),
    Transition(REPLAY, NEGATIVE_ACKNOWLEDGE, BY_OTHERS, REPLAY, "4.21"),
    Transition(REPLAY, RESCHEDULE, ALWAYS, REPLAY, "0.33"),
    Transition(REPLAY, WITHHOLD, ALWAYS, PENDING, "1.14"),
    Transition(REPLAY, DELIVER, IS_DUE, PENDING, "2.18, 4.7, 0.21"),
    Transition(DEAD, ORDER_LETTERS, ALWAYS, ACKNOWLEDGED, "4.27, 0.27"),
    Transition(ACKNOWLEDGED, SEEK, IS_BEFORE_TARGET, ACKNOWLEDGED, "3.26"),
    Transition(ACKNOWLEDGED, SEEK, IS_NOT_BEFORE_TARGET, UNREAD, "3.26"),
    Transition(ACKNOWLEDGED, ACKNOWLEDGE, ALWAYS, ACKNOWLEDGED, "3.16"),
    Transition(ACKNOWLEDGED, ACKNOWLEDGE_PART, ALWAYS, ACKNOWLEDGED, "3.16"),
    Transition(ACKNOWLEDGED, NEGATIVE_ACKNOWLEDGE, BY_OTHERS, ACKNOWLEDGED, "4.21"),
)

_BY_CAUSE = {(found.state, found.event, found.guard): found for found in TRANSITIONS}


def transition(state: str, event: str, guard: str = ALWAYS) -> Transition:
    """The transition of an entry in *state* at *event* under *guard*; KeyError if there is none.

    >>> transition(PENDING, REDELIVER, MAY_COME_AGAIN).next_state
    'replay'
    >>> transition(PENDING, REDELIVER, IS_TOO_OFTEN).next_state
    'dead'
    """
    return _BY_CAUSE[state, event, guard]


def events_between(state: str, next_state: str) -> tuple[str, ...]:
    """The events that may lead from *state* to *next_state*, in the order of a round.

    >>> events_between(PENDING, ACKNOWLEDGED)
    ('seek', 'acknowledge', 'acknowledge a part')
    """
    leading = {found.event for found in TRANSITIONS if (found.state, found.next_state) == (state, next_state)}
    return tuple(event for event in EVENTS if event in leading)
