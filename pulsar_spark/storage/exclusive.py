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

import os
import time
import uuid
from pathlib import Path
from typing import NamedTuple

from pulsar_spark.errors import ProducerFenced
from pulsar_spark.storage.lease_file import LeaseFile, is_held
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

    def is_alive(self) -> bool:
        return is_held(self.host, self.pid, self.until)


class ExclusiveClaim:
    """One producer's view of the claim on its topic, whether it has made one or not."""

    def __init__(self, path: Path, topic: str, producer_name: str):
        self._table, self._topic, self._producer_name = Path(path), topic, producer_name
        self._file = LeaseFile(self._table / "_exclusive_producer.json", _Claim)
        self._owner = uuid.uuid4().hex
        self._seen: tuple[int, int] | None = None
        self._is_mine = False

    def holder(self) -> str | None:
        """The name of another producer that has the topic for itself; None where nobody has."""
        claim = self._file.read()
        return claim.producer_name if claim and claim.is_alive() and claim.owner != self._owner else None

    def take(self, *, is_fencing: bool = False) -> bool:
        """Claim the topic; False where somebody else has it, unless that one *is* to be *fenced*."""
        with self._file.lock():
            claim = self._file.read()
            if not is_fencing and claim and claim.is_alive() and claim.owner != self._owner:
                return False
            epoch, self._is_mine = (claim.epoch if claim else 0) + 1, True
            self._write(epoch, time.time() + LEASE_SECONDS)
            AppendTable(self._table).append_transaction(_APPLICATION, epoch)
            return True

    def renew(self) -> None:
        """Say that the owner is there still; nothing where it is the owner no more."""
        self._write_own(LEASE_SECONDS)

    def let_go(self) -> None:
        """End the claim, if it is this producer's; it is not renewed any more, whoever is about to."""
        self._write_own(0.0)

    def check(self) -> None:
        """:class:`ProducerFenced` where somebody else has claimed the topic; the price of a stat where nobody has."""
        try:
            now = os.stat(self._file.path)
        except FileNotFoundError:
            return
        if self._seen == (now.st_ino, now.st_mtime_ns):
            return
        claim = self._file.read()
        is_others = claim is not None and claim.owner != self._owner
        if is_others and (self._is_mine or claim.is_alive()):
            raise ProducerFenced(
                f"producer {claim.producer_name!r} has topic {self._topic!r} for itself: producer "
                f"{self._producer_name!r} publishes nothing any more; close it"
            )
        if not is_others or claim.until == 0:
            self._seen = now.st_ino, now.st_mtime_ns

    def _write_own(self, seconds: float) -> None:
        with self._file.lock():
            claim = self._file.read()
            if self._is_mine and claim and claim.owner == self._owner:
                self._write(claim.epoch, time.time() + seconds if seconds else 0.0)
            self._is_mine = self._is_mine and seconds > 0

    def _write(self, epoch: int, until: float) -> None:
        said = {"epoch": epoch, "owner": self._owner, "producer_name": self._producer_name, "until": until}
        self._file.write(self._owner, **said)
