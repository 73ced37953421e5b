"""Projections, written in order after a round is committed.

A projection decides nothing: it is a function of rows of committed rounds, so it can be made again at any time. Each
follows these rules:

- It is written after every round (except that of a take-over), before the next one begins, from the round's rows of its
  kinds. A crash can leave it incomplete only for the latest round; whoever loads the bundle writes it again, with
  *is_again*, from the same rows.
- Its appends are transactions with the round's number, so nothing is written twice. So they depend on no clock but the
  round's, and not on the memory of an earlier broker.
- What cannot be written becomes a fact of the bundle, which the next round records (see waiting_letters), and is tried
  again. Only errors that concern the whole root are raised.
- It asks the broker as a client would: with requests for the next round.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pulsar_spark.broker.bundle import Bundle
from pulsar_spark.broker.clock import Instant
from pulsar_spark.broker.drafts import Request
from pulsar_spark.broker.projections.letters import write_letters
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round
from pulsar_spark.table_specs import CURSOR_LEDGER


class Projection(NamedTuple):
    """``kinds`` are the kinds of a round's rows it is made from. ``write`` takes the bundle, the round's number and
    instant, these rows, and *is_again* by keyword; it returns requests."""

    name: str
    kinds: tuple[str, ...]
    write: Callable[..., list[Request]]


PROJECTIONS = (Projection("letters", ("letter",), write_letters),)


def write_projections(bundle: Bundle, round_number: int, now: Instant, facts: Sequence[dict]) -> list[Request]:
    """Write the projections of the round just committed, from its *facts*; returns their requests."""
    return _write(bundle, round_number, now, facts, is_again=False)


def write_missing_projections(bundle: Bundle) -> list[Request]:
    """Write what is missing of the latest round's projections, for a bundle just loaded; returns their requests."""
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
