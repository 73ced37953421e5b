"""What became of every message of a subscription: figures for the table, and the promises that were not kept."""
from typing import NamedTuple

import numpy as np


class Account(NamedTuple):
    """The figures of one subscription, and one sentence for each broken promise. ``redelivered`` are the deliveries after a message's first."""

    subscription: str
    kind: str
    published: int
    delivered: int
    redelivered: int
    acknowledged: int
    left: int
    defects: list[str]


def make_account(name: str, kind: str, published: int, stats: dict, notes: list[np.ndarray], closed_after: dict[int, int]) -> Account:
    """The account of a subscription from the broker's *stats* of it and its consumers' *notes*.

    *closed_after* says of consumers that closed early (by their index in *notes*) how many messages they had acknowledged.
    """
    delivered = stats["msgOutCounter"]
    account = Account(name, kind, published, delivered, delivered - published, stats["ackedEntries"], stats["msgBacklog"], [])
    defects = [*_losses(published, notes), *_miscounts(account, sum(map(len, notes)))]
    if kind in ("Exclusive", "Failover"):
        defects += _disorder(notes) + _repeats(notes, closed_after)
    return account._replace(defects=defects)


def _losses(published: int, notes: list[np.ndarray]) -> list[str]:
    seen = np.unique(np.concatenate([part["flight"] for part in notes]))
    missing = published - np.isin(np.arange(published), seen).sum()
    foreign = len(seen) - (published - missing)
    return [f"{missing} messages were never received"] * bool(missing) + [f"{foreign} messages were received that nobody published"] * bool(foreign)


def _miscounts(account: Account, received: int) -> list[str]:
    wrong = []
    if account.left or account.acknowledged != account.published:
        wrong.append(f"{account.acknowledged} of {account.published} messages are acknowledged, {account.left} are left")
    if received > account.delivered:
        wrong.append(f"{received} messages were received but only {account.delivered} delivered")
    return wrong


def _disorder(notes: list[np.ndarray]) -> list[str]:
    found = []
    for part in notes:
        for partition in np.unique(part["partition"]):
            mine = part[part["partition"] == partition]
            ledger, entry = np.diff(mine["ledger"]), np.diff(mine["entry"])
            backwards = int(((ledger < 0) | ((ledger == 0) & (entry <= 0))).sum())
            if backwards:
                found.append(f"a consumer received {backwards} messages of partition {partition} out of order")
    return found


def _repeats(notes: list[np.ndarray], closed_after: dict[int, int]) -> list[str]:
    found = []
    for index, acknowledged in closed_after.items():
        done = notes[index]["flight"][:acknowledged]
        others = np.concatenate([part["flight"] for other, part in enumerate(notes) if other != index])
        again = int(np.isin(others, done).sum())
        if again:
            found.append(f"{again} messages came again after their consumer had acknowledged them and closed")
    return found
