"""Exclusive access to a topic: a claim in the topic's own table (``ProducerAccessMode``, PIP-68).

A claim is a file with a growing epoch, an owner and a time limit, followed by a commit of the epoch. Before each commit
a producer determines the version, then reads the file. So its publish precedes the claim's commit, or it sees the
claim. After the claim ended, its owner may publish until another producer claims.
"""

import uuid
from functools import lru_cache
from typing import NamedTuple

from pulsar_spark.errors import ProducerFenced
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.processes.lease_file import LeaseFile
from pulsar_spark.storage.store.store import AnyPath, path_of, store_of

LEASE_SECONDS = 10.0
RENEW_SECONDS = 3.0
_APPLICATION = "pulsar_spark.exclusive_producer"


class _Claim(NamedTuple):
    """``owner`` is one producer object; ``until`` is Unix time."""

    epoch: int
    owner: str
    producer_name: str
    host: str
    pid: int
    until: float


@lru_cache(maxsize=1000)
def _claim_file(table: AnyPath) -> LeaseFile[_Claim]:
    """The claim's file, one per process: in a store, only repeated looks show that it is not renewed."""
    return LeaseFile(table / "_exclusive_producer.json", _Claim, lambda: LEASE_SECONDS)


class ExclusiveClaim:
    """One producer's view of the claim on its topic."""

    def __init__(self, path: AnyPath, topic: str, producer_name: str):
        self._table, self._topic, self._producer_name = path_of(path), topic, producer_name
        self._store = store_of(self._table)
        self._file = _claim_file(self._table)
        self._owner = uuid.uuid4().hex
        self._seen: tuple | None = None
        self._is_mine = False

    def holder(self) -> str | None:
        """The name of another producer with exclusive access; None without one."""
        claim = self._file.read()
        return claim.producer_name if claim and self._is_others(claim) and self._file.is_alive(claim) else None

    def take(self, *, is_fencing: bool = False) -> bool:
        """Claim the topic; False if another producer has it, unless *is_fencing*."""
        epoch = 0

        def take(claim: _Claim | None) -> dict | None:
            nonlocal epoch
            if not is_fencing and claim and self._is_others(claim) and self._file.is_alive(claim):
                return None
            epoch = 1 + (claim.epoch if claim else open_table(self._table).transaction_version(_APPLICATION) or 0)
            return self._content(epoch, is_held=True)

        if not self._file.change(take):
            return False
        self._is_mine = True
        AppendTable(self._table).append_transaction(_APPLICATION, epoch)
        return True

    def renew(self) -> None:
        self._write_own(is_held=True)

    def release(self) -> None:
        self._write_own(is_held=False)

    def check(self) -> None:
        """:class:`ProducerFenced` if another producer has claimed the topic."""
        try:
            now = self._store.stamp(self._file.path)
        except FileNotFoundError:
            return
        if self._seen == now:
            return
        claim = self._file.read()
        if claim is None:
            self._seen = now
            return
        is_others = self._is_others(claim)
        if is_others and (self._is_mine or self._file.is_alive(claim)):
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
            return self._content(claim.epoch, is_held=is_held)

        self._file.change(write)
        self._is_mine = self._is_mine and is_held

    def _is_others(self, claim: _Claim) -> bool:
        return claim.owner != self._owner

    def _content(self, epoch: int, *, is_held: bool) -> dict:
        return {"epoch": epoch, "owner": self._owner, "producer_name": self._producer_name, "is_held": is_held}
