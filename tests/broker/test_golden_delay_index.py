"""The delay index and what comes due for a cursor, operation by operation, against what Pulsar's trackers answered:
golden i1 (its bucket tracker) and i2 (the one in memory).

To add is to publish an entry and to number it by the clock: the answer is whether it is delayed. To get is to take what
has come due by the clock and still waits in the cursor's map. Entries have the order of their ledgers and entry ids in
all cases.

Where we differ on purpose:

- The tick by which Pulsar delivers early (5.2) is not ours (0.21): of the cases with one, the clock is set to what
  their cut-off is.
- Nothing is lost in a restart (0.24), where Pulsar forgets its open bucket: behind one, and everywhere else too, the
  answers are those of a sorted list.
- Pulsar's pause of all deliveries while many entries of one delay wait (5.6) saves it memory; here they take none, and
  nothing that is due or has no deliver time is held back.
"""

import numpy as np
import pytest

from pulsar_spark.broker.delays.delay_index import DelayIndex
from pulsar_spark.broker.delays.delay_upkeep import DelayUpkeep
from pulsar_spark.broker.delays.dues import Dues
from pulsar_spark.protocol.delays.delays import are_delayed
from pulsar_spark.protocol.entries.entry_codes import ACKNOWLEDGED_CODE, WAITING_CODE
from pulsar_spark.protocol.entries.entry_map import EntryMap
from tests.protocol.golden import cases, named
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"
MS = 1000
FILES = ("i1_bucket_delayed", "i2_memory_delayed")


class Tracker:
    """What of Pulsar's trackers is promised, by the delay index of a real topic; *knows_entries* where one that is
    added again is the same entry (5.7), as the bucket tracker has it. What was added becomes a bucket when there are
    *min_index* of them, and buckets are merged as it is told."""

    def __init__(self, root, *, early_ms: int, knows_entries: bool, min_index: int, max_num_buckets: int):
        self.min_index, self.max_num_buckets = min_index, max_num_buckets
        self.engine, self.early_ms, self.knows_entries = new_engine(None, root), early_ms, knows_entries
        self.engine.create_topic(TOPIC)
        self.cut_off = early_ms * MS
        self.places: list[tuple[int, int]] = []
        self.cleared: set[int] = set()
        self.runs, self.topic_id = [], self.engine.topic_ids[TOPIC]
        self.index, self.entries = DelayIndex(self.engine.layout), EntryMap()
        self.dues = Dues(self.index, self.topic_id, -1, 0)

    def clock(self, now_ms: int) -> None:
        self.cut_off = (now_ms + self.early_ms) * MS

    def add(self, ledger: int, entry: int, deliver_at_ms: int) -> bool:
        if self.knows_entries and self.contains(ledger, entry):
            return True
        self.engine.publish(TOPIC, -1, [1], deliver_at_ms=[deliver_at_ms])
        bundle = self.engine.rounds.bundle
        state, position = bundle.topic(TOPIC), bundle.topic(TOPIC).ledgers(-1).end_position
        bundle.number_new()
        (run,) = state.ledgers(-1).parts(position, position)
        run = run._replace(delayed_after=max(self.cut_off, self.dues.watermark))
        self.index.add(state, -1, [run])
        self.runs.append(run)
        if self.index.head.entries >= self.min_index:
            upkeep = DelayUpkeep(self.index, max_num_buckets=self.max_num_buckets)
            upkeep.seal(is_forced=True)
            upkeep.work()
        self.places.append((ledger, entry))
        is_delayed = bool(are_delayed(np.array([deliver_at_ms * MS]), run.delayed_after)[0])
        self.entries.set_span(position, position, WAITING_CODE if is_delayed else ACKNOWLEDGED_CODE)
        self.entries.take_changes()
        return is_delayed

    def get(self, most: int) -> list[list[int]]:
        positions = np.sort(self.dues.come_due(self.entries, self.cut_off, most).positions)
        self.entries.set_at(positions, ACKNOWLEDGED_CODE)
        self.entries.take_changes()
        self.dues.advance_watermark(self.entries)
        return [
            list(place) for place in sorted({self.places[at] for at in positions.tolist() if at not in self.cleared})
        ]

    def contains(self, ledger: int, entry: int) -> bool:
        return (ledger, entry) in {self.places[at] for at in self.waiting()}

    def clear(self) -> None:
        self.cleared |= set(self.waiting())

    def restart(self) -> None:
        """Another broker: all it has are the rows of the cursor and the topic."""
        before, self.index = self.dues, DelayIndex(self.engine.layout)
        self.index.add(self.engine.rounds.bundle.topic(TOPIC), -1, self.runs)
        self.dues = Dues(self.index, self.topic_id, -1, before.watermark)

    def waiting(self) -> list[int]:
        """The positions of all that nobody got."""
        known = self.entries.where([WAITING_CODE], 0, self.entries.end - 1).tolist()
        return [position for position in known if position not in self.cleared]

    def state(self) -> dict:
        """How many entries wait or are due, and whether any is due."""
        due = self.dues.come_due(self.entries, self.cut_off, 1)
        return {"delayed": len(self.waiting()), "has_available": len(due) > 0}


class SortedList:
    """The same by a list of (deliver time, place); entries may be in it twice."""

    def __init__(self, *, early_ms: int, knows_entries: bool):
        self.early_ms, self.knows_entries, self.cut_off, self.known = early_ms, knows_entries, early_ms, []

    def clock(self, now_ms: int) -> None:
        self.cut_off = now_ms + self.early_ms

    def add(self, ledger: int, entry: int, deliver_at_ms: int) -> bool:
        is_known = self.knows_entries and self.contains(ledger, entry)
        if not is_known and deliver_at_ms > self.cut_off:
            self.known.append((deliver_at_ms, [ledger, entry]))
        return is_known or deliver_at_ms > self.cut_off

    def get(self, most: int) -> list[list[int]]:
        due = sorted(entry for entry in self.known if entry[0] <= self.cut_off)[:most]
        for entry in due:
            self.known.remove(entry)
        return sorted({tuple(place) for _, place in due})

    def contains(self, ledger: int, entry: int) -> bool:
        return [ledger, entry] in [place for _, place in self.known]

    def clear(self) -> None:
        self.known = []

    def restart(self) -> None:
        """Nothing is lost."""

    def state(self) -> dict:
        return {"delayed": len(self.known), "has_available": any(at <= self.cut_off for at, _ in self.known)}


@pytest.mark.parametrize("case", [case for file in FILES for case in cases(file)], ids=named)
def test_the_index_answers_as_the_trackers_do(case, tmp_path):
    config = case["input"]["config"]
    told = {"early_ms": 0 if config["strict"] else config["tick_ms"], "knows_entries": config["tracker"] == "bucket"}
    buckets = {
        "min_index": config.get("min_index_per_bucket", 3),
        "max_num_buckets": max(config.get("max_num_buckets", 0), 2),
    }
    tracker, plain, is_theirs = Tracker(tmp_path, **told, **buckets), SortedList(**told), True
    for number, (operation, theirs) in enumerate(
        zip(case["input"]["ops"], case["expected"]["after_each_op"], strict=True)
    ):
        kind, *arguments = operation
        found = [getattr(each, kind)(*arguments) for each in (tracker, plain)]
        states = [tracker.state(), plain.state()]
        assert [found[0], states[0]] == [[*map(list, found[1])] if kind == "get" else found[1], states[1]], number
        is_theirs &= kind != "restart"
        if is_theirs:
            expected = {name: theirs["state"][name] for name in states[0] if name in theirs.get("state", {})}
            assert (found[0], states[0] | expected) == (theirs["result"], states[0]), (number, operation)
