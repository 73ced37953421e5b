"""What is written behind a round that is committed: its projections, in order.

A projection decides nothing: it is a function of rows that rounds have committed, so it can be made again at any time.
Each keeps to this:

- It is written behind every round but that of a take-over, which decides nothing, before the next begins, from the
  round's rows of the kinds it names. A crash in between leaves the latest round without it, or with part of it, and
  whoever takes the bundle over, or reads it again, has it written once more: with *is_again*, from the same rows.
- Its appends bear the round's number as their transaction, so what is there is not written twice. Hence nothing else
  goes into them: no clock but the round's, nothing of the memory of the broker that was there first.
- What cannot be written holds nothing back: it is left, a fact of the bundle that the next round says (see
  waiting_letters), and tried again. Only what concerns the whole root is raised.
- What it wants of the broker it asks as a client would: requests, for the next round.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pulsar_spark.broker.bundle import Bundle
from pulsar_spark.broker.clock import Instant
from pulsar_spark.broker.drafts import Request
from pulsar_spark.broker.projections.letters import write_letters
from pulsar_spark.storage.committed_rounds import read_round
from pulsar_spark.table_specs import CURSOR_LEDGER


class Projection(NamedTuple):
    """``kinds`` are the rows of a round it is made of. ``write`` takes the bundle, the round's number and instant, and
    those rows, and by keyword whether it was begun before; it gives requests."""

    name: str
    kinds: tuple[str, ...]
    write: Callable[..., list[Request]]


PROJECTIONS = (Projection("letters", ("letter",), write_letters),)


def write_projections(bundle: Bundle, round_number: int, now: Instant, facts: Sequence[dict]) -> list[Request]:
    """Write what the *facts* of the round that was just committed ask for; the requests it leads to."""
    return _write(bundle, round_number, now, facts, is_again=False)


def write_missing_projections(bundle: Bundle) -> list[Request]:
    """Write what the latest round of a bundle that was just loaded asks for, where it is not there; the requests it
    leads to. Nothing for a bundle without rounds."""
    if not bundle.round:
        return []
    kinds = sorted({kind for projection in PROJECTIONS for kind in projection.kinds})
    path = bundle.layout.broker_table(CURSOR_LEDGER.name)
    facts = read_round(path, bundle.version, kinds).to_pylist()
    return _write(bundle, bundle.round, bundle.now, facts, is_again=True)


def _write(bundle: Bundle, round_number: int, now: Instant, facts: Sequence[dict], *, is_again: bool) -> list[Request]:
    requests: list[Request] = []
    for projection in PROJECTIONS:
        rows = [fact for fact in facts if fact["kind"] in projection.kinds]
        requests += projection.write(bundle, round_number, now, rows, is_again=is_again)
    return requests
