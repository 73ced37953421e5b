"""The map of entries against a dict that says the same of each position."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.protocol.entries.entry_codes import ACKNOWLEDGED_CODE, UNREAD_CODE, EntryCodes, EntryState
from pulsar_spark.protocol.entries.entry_map import UNCHANGED, EntryMap
from pulsar_spark.protocol.entries.entry_pages import PAGE, pack, unpack

END = 3 * PAGE + 100
CODES = [UNREAD_CODE, ACKNOWLEDGED_CODE, 4, 5, 70, 70_000]
spots = st.integers(0, END - 1)
spans = st.tuples(spots, st.sampled_from([1, 3, 90, PAGE, 2 * PAGE])).map(lambda s: (s[0], min(sum(s), END) - 1))
coded = st.sampled_from(CODES)
changes = st.one_of(
    st.tuples(st.just("span"), spans, coded),
    st.tuples(st.just("at"), st.sets(spots, min_size=1, max_size=20), coded),
    st.tuples(st.just("window"), spots, st.lists(st.sampled_from([UNCHANGED, *CODES]), min_size=1, max_size=30)),
    st.tuples(st.just("replace"), spans, st.tuples(st.sets(coded, min_size=1), coded)),
    st.tuples(st.just("take"), st.none(), st.none()),
    st.tuples(st.just("rest"), st.none(), st.booleans()),
)


class Plain:
    """What the map is to say, position by position; *taken* is what it said when changes were last taken."""

    def __init__(self):
        self.now = dict.fromkeys(range(END), UNREAD_CODE)
        self.taken, self.mark_delete = dict(self.now), -1

    def put(self, positions, codes) -> None:
        for position, code in zip(positions, codes):
            if position > self.mark_delete and code != UNCHANGED:
                self.now[position] = code

    def take(self) -> dict[int, int]:
        changed = {position: code for position, code in self.now.items() if code != self.taken[position]}
        self.taken = dict(self.now)
        while self.now.get(self.mark_delete + 1) == ACKNOWLEDGED_CODE:
            self.mark_delete += 1
        return changed


def change(entries: EntryMap, plain: Plain, kind: str, where, what) -> None:
    if kind == "span":
        entries.set_span(*where, what)
        plain.put(range(where[0], where[1] + 1), [what] * (where[1] + 1 - where[0]))
    elif kind == "at":
        positions = np.array(sorted(each for each in where if each > plain.mark_delete), np.int64)
        entries.set_at(positions, what)
        plain.put(positions.tolist(), [what] * len(positions))
    elif kind == "window":
        first = max(where, plain.mark_delete + 1)
        codes = what[: END - first]
        if codes:
            entries.set_window(first, np.array(codes))
        plain.put(range(first, first + len(codes)), codes)
    elif kind == "replace":
        before, after = what
        hit = [at for at in range(where[0], where[1] + 1) if at > plain.mark_delete and plain.now[at] in before]
        assert entries.replace(before, *where, after) == len(hit)
        plain.put(hit, [after] * len(hit))
    elif kind == "rest":
        entries.pack_unchanged(with_fresh=bool(what))


def told(taken) -> dict[int, int]:
    found = {}
    for each in taken:
        codes = each.codes.tolist() if not each.is_uniform else each.codes.tolist() * each.entries
        found |= {each.first + at: code for at, code in enumerate(codes) if code != UNCHANGED}
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(changes, max_size=12))
def test_the_map_says_of_each_entry_what_a_dict_says(steps):
    entries, plain = EntryMap(), Plain()
    for kind, where, what in [*steps, ("take", None, None)]:
        if kind == "take":
            assert told(entries.take_changes()) == plain.take()
            assert entries.mark_delete == plain.mark_delete
            counted = {code: int(entries.counts[code]) for code in CODES[1:] if code < len(entries.counts)}
            above = [plain.now[at] for at in range(plain.mark_delete + 1, END)]
            assert counted == {code: above.count(code) for code in counted}
        else:
            change(entries, plain, kind, where, what)
        codes = [plain.now[at] for at in range(END)]
        assert entries.window(0, END - 1).tolist() == codes
        assert entries.at(np.arange(0, END, 17)).tolist() == codes[::17]
        for wanted in ({4}, {UNREAD_CODE, 70}):
            hit = [
                at for at, code in enumerate(codes) if code in wanted and at >= max(PAGE // 2, plain.mark_delete + 1)
            ]
            assert entries.where(wanted, PAGE // 2, END - 1).tolist() == hit
            assert entries.count(wanted, PAGE // 2, END - 1) == len(hit)
            assert entries.first_of(wanted, PAGE // 2, END - 1) == (hit[0] if hit else None)
        runs = list(zip(*(column.tolist() for column in entries.runs(0, END - 1))))
        assert [code for first, last, code in runs for _ in range(first, last + 1)] == codes
        assert all(before[2] != after[2] for before, after in zip(runs, runs[1:]))


@settings(max_examples=60, deadline=None)
@given(st.lists(changes, max_size=12))
def test_the_changes_of_all_rounds_make_the_same_map(steps):
    entries, plain, copy = EntryMap(), Plain(), EntryMap()
    for kind, where, what in [*steps, ("take", None, None)]:
        if kind != "take":
            change(entries, plain, kind, where, what)
            continue
        for each in entries.take_changes():
            if each.is_uniform:
                copy.set_span(each.first, each.last, int(each.codes[0]))
            else:
                copy.set_window(each.first, each.codes)
        plain.take()
        copy.take_changes()
        assert copy.window(0, END - 1).tolist() == entries.window(0, END - 1).tolist()
        assert copy.mark_delete == entries.mark_delete


@given(st.lists(st.integers(0, (1 << 20) - 1), min_size=1, max_size=40), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_a_packed_page_has_its_codes(codes, seed):
    page = np.random.default_rng(seed).choice(np.array(codes, np.uint32), PAGE)
    assert (unpack(pack(page)) == page).all()


def test_a_page_of_two_codes_takes_a_bit_an_entry_and_one_of_hundreds_four_bytes_at_most():
    assert len(pack(np.arange(PAGE, dtype=np.uint16) % 2)) <= PAGE // 8 + 8
    assert len(pack(np.arange(PAGE, dtype=np.uint16))) <= 4 * PAGE + 8


def test_a_cursor_that_is_done_keeps_no_page():
    entries = EntryMap()
    entries.set_span(0, 10_000, 4)
    entries.take_changes()
    entries.replace([4], 0, 10_000, ACKNOWLEDGED_CODE)
    assert [(each.first, each.last) for each in entries.take_changes()] == [(0, 10_000)]
    assert entries.mark_delete == 10_000
    assert entries.nbytes < 100


def test_codes_are_given_again_once_no_entry_has_them():
    codes = EntryCodes()
    first, second = (codes.code(EntryState("pending", "c", number)) for number in (1, 2))
    codes.free(np.array([0, 0, 0, 0, 0, 9]))
    assert codes.state(second) == EntryState("pending", "c", 2)
    assert codes.code(EntryState("replay", redelivery_count=1)) == first
    assert codes.with_status("pending", "replay").tolist() == [first, second]


def test_a_code_that_is_stored_means_what_its_row_says():
    codes = EntryCodes()
    codes.recode(9, EntryState("pending", "c", 1))
    assert codes.code(EntryState("pending", "c", 1)) == 9
    codes.recode(9, EntryState("replay"))
    assert codes.state(9) == EntryState("replay")
    assert len(codes) == 10
