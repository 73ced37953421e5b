"""Who alone may publish to a topic: a claim in the topic's own table.

Rule: ``ProducerAccessMode`` of Apache Pulsar (PIP-68). A claim is a file in the table's folder, with an epoch that only
grows, who has it, and until when, which the owner renews; and, after the file is written, a commit in the table's log
that says the epoch and nothing else. A producer looks at the file whenever it has found out which version its next
commit would be, and again when that was taken. So of a producer and a claim that meet either the publish lies before
the claim's commit, or it finds that version taken, looks, and publishes nothing: the log decides, and no clock, and no
broker's memory.

Two who claim at a time take the file's lock in turn. A claim ends when its owner lets go, when its process on this
machine is gone, or when it was not renewed for so long; its owner may go on publishing until somebody else claims.
"""

import uuid
from functools import lru_cache
from typing import NamedTuple

from pulsar_spark.errors import ProducerFenced
from pulsar_spark.storage.lease_file import LeaseFile
from pulsar_spark.storage.scan import open_table
from pulsar_spark.storage.store import AnyPath, Store, path_of, store_of
from pulsar_spark.storage.tables import AppendTable

LEASE_SECONDS = 10.0
RENEW_SECONDS = 3.0
_APPLICATION = "pulsar_spark.exclusive_producer"


class _Claim(NamedTuple):
    """``owner`` is of one producer object alone, ``until`` in Unix time."""

    epoch: int
    owner: str
    producer_name: str
    host: str
    pid: int
    until: float


@lru_cache(maxsize=1000)
def _claim_file(store: Store, table: AnyPath) -> LeaseFile[_Claim]:
    """One for all producers of the process: in a store it is gone when it was the same for so long, and a producer that
    is refused is not there to see that."""
    return LeaseFile(table / "_exclusive_producer.json", _Claim, lambda: LEASE_SECONDS)


class ExclusiveClaim:
    """One producer's view of the claim on its topic, whether it has made one or not."""

    def __init__(self, path: AnyPath, topic: str, producer_name: str):
        self._table, self._topic, self._producer_name = path_of(path), topic, producer_name
        self._store = store_of(self._table)
        self._file = _claim_file(self._store, self._table)
        self._owner = uuid.uuid4().hex
        self._seen: tuple | None = None
        self._is_mine = False

    def holder(self) -> str | None:
        """The name of another producer that has the topic for itself; None where nobody has."""
        claim = self._file.read()
        return claim.producer_name if claim and self._is_others(claim) and self._file.is_held(claim) else None

    def take(self, *, is_fencing: bool = False) -> bool:
        """Claim the topic; False where somebody else has it, unless that one *is* to be *fenced*."""
        epoch = 0

        def take(claim: _Claim | None) -> dict | None:
            nonlocal epoch
            if not is_fencing and claim and self._is_others(claim) and self._file.is_held(claim):
                return None
            epoch = (claim.epoch if claim else self._logged_epoch()) + 1
            return self._said(epoch, is_held=True)

        if not self._file.change(take):
            return False
        self._is_mine = True
        AppendTable(self._table).append_transaction(_APPLICATION, epoch)
        return True

    def _logged_epoch(self) -> int:
        """The epoch of the latest claim that the topic's log has, for a file that says none; 0 without one."""
        return open_table(self._table).transaction_version(_APPLICATION) or 0

    def renew(self) -> None:
        """Say that the owner is there still; nothing where it is the owner no more."""
        self._write_own(is_held=True)

    def let_go(self) -> None:
        """End the claim, if it is this producer's; it is not renewed any more, whoever is about to."""
        self._write_own(is_held=False)

    def check(self) -> None:
        """:class:`ProducerFenced` where somebody else has claimed the topic; the price of a stat where nobody has."""
        try:
            now = self._store.stamp(self._file.path)
        except FileNotFoundError:
            return
        if self._seen == now:
            return
        claim = self._file.read()
        is_others = claim is not None and self._is_others(claim)
        if is_others and (self._is_mine or self._file.is_held(claim)):
            raise ProducerFenced(
                f"producer {claim.producer_name!r} has exclusive access to topic {self._topic!r}: producer "
                f"{self._producer_name!r} can no longer publish; close it"
            )
        if not is_others or claim.until == 0:
            self._seen = now

    def _write_own(self, *, is_held: bool) -> None:
        def write(claim: _Claim | None) -> dict | None:
            if not self._is_mine or claim is None or self._is_others(claim):
                return None
            return self._said(claim.epoch, is_held=is_held)

        self._file.change(write)
        self._is_mine = self._is_mine and is_held

    def _is_others(self, claim: _Claim) -> bool:
        return claim.owner != self._owner

    def _said(self, epoch: int, *, is_held: bool) -> dict:
        return {"epoch": epoch, "owner": self._owner, "producer_name": self._producer_name, "is_held": is_held}
