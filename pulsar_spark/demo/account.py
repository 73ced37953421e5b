"""The account of every message of a subscription: figures, and broken promises."""

from typing import NamedTuple

import numpy as np

from pulsar_spark.demo.consumers import REDELIVERIES
from pulsar_spark.protocol.acknowledgement.positions import distinct


class Letters(NamedTuple):
    """The dead letters of a subscription: the flights that must die, and the letters written, sent back and
    acknowledged."""

    expected: np.ndarray
    dead: int
    sent: int
    acknowledged: int


class Keyed(NamedTuple):
    """Each flight's key number, and the consumers (by index in the notes) that went early."""

    keys: np.ndarray
    gone: set[int]


class Account(NamedTuple):
    """The figures of one subscription, and a sentence per broken promise. ``redelivered`` counts deliveries after a
    message's first."""

    subscription: str
    kind: str
    published: int
    delivered: int
    redelivered: int
    dead: int
    repaired: int
    acknowledged: int
    left: int
    defects: list[str]


def make_account(
    name: str,
    kind: str,
    published: int,
    stats: dict,
    notes: list[np.ndarray],
    closed_after: dict[int, int],
    letters: Letters | None = None,
    keyed: Keyed | None = None,
    due: np.ndarray | None = None,
) -> Account:
    """The account of a subscription from the broker's *stats* and its consumers' *notes*.

    *closed_after*: messages acknowledged by consumers that closed early, by index in *notes*. *keyed* requires order
    per key; *due* is when each message may first be received.
    """
    delivered = stats["msgOutCounter"]
    account = Account(
        name,
        kind,
        published,
        delivered,
        delivered - published,
        letters.dead if letters else 0,
        letters.acknowledged if letters else 0,
        stats["ackedEntries"],
        stats["msgBacklog"],
        [],
    )
    defects = _letter_defects(letters, np.concatenate(notes)) if letters else []
    notes = [part[~part["is_repaired"]] for part in notes]
    defects += [*_losses(published, notes), *_miscounts(account, sum(map(len, notes)))]
    if kind in ("Exclusive", "Failover"):
        defects += _disorder(notes)
    if keyed:
        defects += _key_defects(keyed, notes)
    if due is not None:
        defects += _untimely(due, np.concatenate(notes))
    if kind != "Shared":
        defects += _repeats(notes, closed_after)
    return account._replace(defects=defects)


def _letter_defects(letters: Letters, notes: np.ndarray) -> list[str]:
    repaired, attempted = notes[notes["is_repaired"]], notes[~notes["is_repaired"]]
    found = []
    if not letters.dead == letters.sent == letters.acknowledged == len(letters.expected):
        found.append(
            f"{len(letters.expected)} flights must die, {letters.dead} did, {letters.sent} were sent back, "
            f"{letters.acknowledged} of these acknowledged"
        )
    if wrong := len(np.setxor1d(repaired["flight"], letters.expected)):
        found.append(f"{wrong} flights were repaired that need not be, or were not although they had to be")
    for count in range(1, REDELIVERIES + 1):
        if wrong := len(np.setxor1d(attempted["flight"][attempted["redelivery_count"] == count], letters.expected)):
            found.append(
                f"{wrong} flights came with redelivery count {count} that must not, or did not although they had to"
            )
    if wrong := int((attempted["redelivery_count"] > REDELIVERIES).sum()):
        found.append(f"{wrong} deliveries came after the last attempt")
    return found


def _losses(published: int, notes: list[np.ndarray]) -> list[str]:
    seen = distinct(np.concatenate([part["flight"] for part in notes]))
    missing = published - np.isin(np.arange(published), seen).sum()
    foreign = len(seen) - (published - missing)
    return [f"{missing} messages were never received"] * bool(missing) + [
        f"{foreign} messages were received that nobody published"
    ] * bool(foreign)


def _miscounts(account: Account, received: int) -> list[str]:
    wrong = []
    if account.left or account.acknowledged != account.published:
        wrong.append(
            f"{account.acknowledged} of {account.published} messages are acknowledged, {account.left} are left"
        )
    if received > account.delivered:
        wrong.append(f"{received} messages were received but only {account.delivered} delivered")
    return wrong


def _disorder(notes: list[np.ndarray]) -> list[str]:
    found = []
    for part in notes:
        for partition in distinct(part["partition"]):
            mine = part[part["partition"] == partition]
            ledger, entry = np.diff(mine["ledger"]), np.diff(mine["entry"])
            backwards = int(((ledger < 0) | ((ledger == 0) & (entry <= 0))).sum())
            if backwards:
                found.append(f"a consumer received {backwards} messages of partition {partition} out of order")
    return found


def _repeats(notes: list[np.ndarray], closed_after: dict[int, int]) -> list[str]:
    found = []
    for index, acknowledged in closed_after.items():
        done = notes[index][:acknowledged]
        others = np.concatenate([part for other, part in enumerate(notes) if other != index])
        had_at = np.full(max(part["flight"].max(initial=0) for part in notes) + 1, np.iinfo("i8").max)
        had_at[done["flight"]] = done["time"]
        if again := int((others["time"] >= had_at[others["flight"]]).sum()):
            found.append(f"{again} messages came again after their consumer had acknowledged them and closed")
    return found


def _key_defects(keyed: Keyed, notes: list[np.ndarray]) -> list[str]:
    found = []
    for part in notes:
        if backwards := _backwards(keyed.keys, part):
            found.append(f"a consumer received {backwards} messages before earlier ones of their key")
    in_time = np.concatenate(notes)
    in_time = in_time[np.argsort(in_time["time"], kind="stable")]
    firsts = np.sort(np.unique(in_time["flight"], return_index=True)[1])
    if not found and (backwards := _backwards(keyed.keys, in_time[firsts])):
        found.append(f"{backwards} messages were received before earlier ones of their key, by different consumers")
    stayed = [distinct(part["flight"]) for index, part in enumerate(notes) if index not in keyed.gone]
    counts = np.unique(np.concatenate([*stayed, np.empty(0, "i8")]), return_counts=True)[1]
    if twice := int((counts > 1).sum()):
        found.append(f"{twice} messages were received by two consumers, neither of which went")
    return found


def _untimely(due: np.ndarray, notes: np.ndarray) -> list[str]:
    early = int((notes["time"] < due[notes["flight"]]).sum())
    twice = len(notes) - len(distinct(notes["flight"]))
    return [f"{early} messages were received early"] * bool(early) + [f"{twice} messages came again"] * bool(twice)


def _backwards(keys: np.ndarray, notes: np.ndarray) -> int:
    """How many of *notes* do not follow the one before of their key and partition."""
    key, partition, flight = keys[notes["flight"]], notes["partition"], notes["flight"]
    order = np.lexsort((np.arange(len(notes)), partition, key))
    same = (np.diff(key[order]) == 0) & (np.diff(partition[order]) == 0)
    return int((same & (np.diff(flight[order]) <= 0)).sum())
