"""Projections: what a committed round writes elsewhere, as a function of its rows.

- It is written before the next round. Whoever loads the bundle writes that of the latest round again, with *is_again*.
- Its appends are transactions with the round's number, so they are written once.
- What cannot be written is recorded in the next round and tried again (see waiting_letters).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.clock import Instant
from pulsar_spark.broker.letters.letters import write_letters
from pulsar_spark.broker.requests.request import Request
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round
from pulsar_spark.table_specs import CURSOR_LEDGER


class Projection(NamedTuple):
    """``kinds`` of rows it is made from; ``write`` takes bundle, round number, instant, rows and *is_again*, and
    returns requests."""

    name: str
    kinds: tuple[str, ...]
    write: Callable[..., list[Request]]


PROJECTIONS = (Projection("letters", ("letter",), write_letters),)


def write_projections(bundle: Bundle, round_number: int, now: Instant, facts: Sequence[dict]) -> list[Request]:
    """Write the projections of the round just committed; returns requests."""
    return _write(bundle, round_number, now, facts, is_again=False)


def write_missing_projections(bundle: Bundle) -> list[Request]:
    """Write what the latest round's projections lack, after loading; returns requests."""
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
