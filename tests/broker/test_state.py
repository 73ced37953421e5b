"""Pages of a cursor: any history of replacements gives the ranges that a cursor of one page has, and mark-delete runs
over what adjoins it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.broker.cursors import pages
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY, Range
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey

KEY = CursorKey("topic", -1, "s")


def pending(first: int, last: int, consumer_id: str = "a", due_time: int | None = None) -> Range:
    return Range(first, last, PENDING, consumer_id, 1, 0, due_time, None, 1)


def test_a_cursor_splits_its_ranges_into_pages_and_finds_positions_in_them(monkeypatch):
    monkeypatch.setattr(pages, "MAX_PAGE_RANGES", 2)
    cursor = Cursor(KEY, "t", -1, 0)
    ranges = [
        pending(0, 4),
        Range(5, 5, ACKNOWLEDGED),
        pending(6, 6, "b"),
        Range(7, 8, REPLAY, redelivery_count=1, batch_size=1),
        pending(9, 9),
    ]
    changed, gone = cursor.replace(set(), ranges)
    assert [page.first for page in changed] == [0, 5, 7], "pages of like size"
    assert gone == []
    assert list(cursor.ranges()) == ranges
    assert [cursor.find(position) for position in (0, 5, 8, 10)] == [ranges[0], ranges[1], ranges[3], None]
    assert cursor.unacked == {"a": 6, "b": 1}


def test_a_page_in_the_middle_is_replaced_alone(monkeypatch):
    monkeypatch.setattr(pages, "MAX_PAGE_RANGES", 1)
    cursor = Cursor(KEY, "t", -1, 0)
    cursor.replace(set(), [pending(0, 0), pending(1, 3, "b"), pending(4, 4, "c")])
    changed, gone = cursor.replace({1}, [pending(1, 1, "b"), Range(2, 2, ACKNOWLEDGED), pending(3, 3, "b")])
    assert ([page.first for page in changed], gone) == ([1, 2, 3], [])
    assert cursor.unacked == {"a": 1, "b": 2, "c": 1}
    changed, gone = cursor.replace({1, 2, 3}, [Range(1, 3, ACKNOWLEDGED)])
    assert ([page.first for page in changed], gone) == ([1], [2, 3])
    assert cursor.unacked == {"a": 1, "c": 1}


def test_mark_delete_runs_through_pages_that_were_not_touched(monkeypatch):
    monkeypatch.setattr(pages, "MAX_PAGE_RANGES", 1)
    cursor = Cursor(KEY, "t", -1, 0)
    cursor.replace(set(), [pending(0, 0), Range(1, 3, ACKNOWLEDGED), pending(4, 4)])
    cursor.read_position = 5
    changed, gone = cursor.replace({0}, [Range(0, 0, ACKNOWLEDGED)])
    assert cursor.mark_delete == 3
    assert (changed, gone) == ([], [0, 1])
    assert [page.first for page in cursor.pages] == [4]


def test_a_page_is_not_kept_before_others_that_its_ranges_lie_behind(monkeypatch):
    """Its name is that of a range that mark-delete took; entries that were passed over are handed out now."""
    monkeypatch.setattr(pages, "MAX_PAGE_RANGES", 3)
    cursor = Cursor(KEY, "t", -1, 0)
    behind = [pending(3, 3), Range(5, 6, ACKNOWLEDGED)]
    cursor.replace(set(), [Range(0, 0, ACKNOWLEDGED), *behind])
    assert [(page.first, page.ranges) for page in cursor.pages] == [(0, behind)]
    changed, gone = cursor.replace({0}, [pending(1, 1), pending(2, 2, "b"), *behind])
    assert ([page.first for page in changed], gone) == ([1, 3], [0])
    assert [cursor.find(position) for position in (1, 3, 6)] == [pending(1, 1), *behind]


def test_mark_delete_that_passes_the_read_position_takes_it_along():
    cursor = Cursor(KEY, "t", -1, 0)
    cursor.replace(set(), [Range(0, 9, ACKNOWLEDGED)])
    assert (cursor.mark_delete, cursor.read_position, list(cursor.pages)) == (9, 10, [])


def test_a_page_knows_when_its_next_entry_falls_due():
    cursor = Cursor(KEY, "t", -1, 0)
    cursor.replace(
        set(),
        [
            pending(0, 0, due_time=50),
            pending(1, 1, due_time=20),
            Range(2, 2, REPLAY, redelivery_count=0, due_time=70, batch_size=1),
        ],
    )
    assert (cursor.pages[0].returns_at, cursor.pages[0].replays_at) == (20, 70)


def test_a_change_rewrites_few_ranges_however_many_there_are():
    """A page of them is written for each place a round changes: pages are small until there are thousands."""
    cursor = Cursor(KEY, "t", -1, 0)
    ranges = [pending(position, position) for position in range(0, 20_000, 2)]
    cursor.replace(set(), ranges)
    middle = cursor.page_index(10_000)
    held = cursor.pages[middle].ranges
    acknowledged = Range(held[0].first, held[0].last, ACKNOWLEDGED)
    last = len(cursor.pages) - 1
    untouched = [page for page in cursor.pages if page is not cursor.pages[middle]]
    changed, gone = cursor.replace(
        {0, middle, last}, [*cursor.pages[0].ranges, acknowledged, *held[1:], *cursor.pages[last].ranges]
    )
    assert ([page.ranges for page in changed], gone) == ([[acknowledged, *held[1:]]], [])
    assert len(held) <= pages.MIN_PAGE_RANGES
    assert [page for page in cursor.pages if page is not changed[0]] == untouched
    assert list(cursor.ranges()) == [acknowledged if each == held[0] else each for each in ranges]


def test_pages_of_very_many_ranges_are_larger(monkeypatch):
    monkeypatch.setattr(pages, "MANY_PAGES", 10_000)
    cursor = Cursor(KEY, "t", -1, 0)
    cursor.replace(set(), [pending(position, position) for position in range(0, 400_000, 2)])
    assert len(cursor.pages) == pages.MANY_PAGES and {len(page.ranges) for page in cursor.pages} == {20}


def test_ranges_that_no_round_touches_are_no_objects(monkeypatch):
    """All are when they are made; then those that rounds had to do with of late."""
    monkeypatch.setattr(pages, "REST_AFTER", 2 * pages.MIN_PAGE_RANGES)
    cursor = Cursor(KEY, "t", -1, 0)
    ranges = [pending(position, position) for position in range(0, 2_000, 2)]
    cursor.replace(set(), ranges)
    before = [(page.unacked, page.spans.tolist()) for page in cursor.pages]
    last = len(cursor.pages) - 1
    for _ in range(6):
        touched = [*cursor.pages[0].ranges, *cursor.pages[last].ranges]
        touched[0] = touched[0]._replace(redelivery_count=touched[0].redelivery_count + 1)
        cursor.replace({0, last}, touched)
    assert {at for at, page in enumerate(cursor.pages) if isinstance(page.held, list)} == {0, last}
    assert list(cursor.ranges()) == [touched[0], *ranges[1:]]
    assert [(page.unacked, page.spans.tolist()) for page in cursor.pages] == before
    assert cursor.find(1_000) == ranges[500] and cursor.find(1_001) is None
    again = Cursor(KEY, "t", -1, 0)
    again.load_pages({page.first: list(page.held) for page in cursor.pages})
    assert not any(isinstance(page.held, list) for page in again.pages)
    assert list(again.ranges()) == list(cursor.ranges()) and again.unacked == cursor.unacked


@given(
    st.sets(st.integers(0, 30)).flatmap(
        lambda firsts: st.tuples(st.just(firsts), st.sets(st.sampled_from(sorted(firsts) or [31])), st.data())
    )
)
def test_what_is_known_of_pages_is_what_they_say_whatever_was_replaced(drawn):
    firsts, gone, data = drawn
    stay = firsts - gone
    made = sorted(data.draw(st.sets(st.integers(0, 40))) - stay)
    found = pages.Pages(pages.Page(first, [pending(first, first, due_time=first)]) for first in firsts)
    before = list(found)
    found.replace(
        [number for number, page in enumerate(before) if page.first in gone],
        [pages.Page(first, [Range(first, first, REPLAY, redelivery_count=0, batch_size=1)] * 2) for first in made],
    )
    assert found.firsts.tolist() == [page.first for page in found] == sorted([*stay, *made])
    assert [page for page in found if page in before] == [page for page in before if page.first in stay]
    assert found.sizes.tolist() == [1 + (page.first in made) for page in found]
    assert found.returns_at.tolist() == [pages.NEVER if page.first in made else page.first for page in found]
    assert found.replays_at.tolist() == [0 if page.first in made else pages.NEVER for page in found]


@st.composite
def replacements(draw):
    """Rounds: each gives positions 0..39 new statuses where it touches them."""
    return draw(
        st.lists(
            st.lists(st.tuples(st.integers(0, 39), st.sampled_from([ACKNOWLEDGED, "a", "b"])), min_size=1, max_size=8),
            min_size=1,
            max_size=8,
        )
    )


@settings(max_examples=150, deadline=None)
@given(replacements(), st.integers(1, 5), st.sampled_from([1, 5, pages.REST_AFTER]))
def test_pages_never_change_what_a_cursor_says(rounds, size, rest_after):
    limits = pages.MAX_PAGE_RANGES, pages.REST_AFTER
    pages.MAX_PAGE_RANGES, pages.REST_AFTER = size, rest_after
    try:
        cursor, expected = Cursor(KEY, "t", -1, 0), {}
        for changes in rounds:
            mark_delete = cursor.mark_delete
            changes = {position: status for position, status in changes if position > mark_delete}
            touched = (
                {cursor.page_index(position) for position in changes} | {0, len(cursor.pages) - 1}
                if cursor.pages
                else set()
            )
            inside = {held.first: held for index in touched for held in cursor.pages[index].ranges}
            fresh = {
                position: Range(position, position, ACKNOWLEDGED)
                if status == ACKNOWLEDGED
                else pending(position, position, status)
                for position, status in changes.items()
            }
            expected.update(fresh)
            cursor.replace(touched, [held for _, held in sorted((inside | fresh).items())])
            while expected.get(mark_delete + 1) == Range(mark_delete + 1, mark_delete + 1, ACKNOWLEDGED):
                mark_delete += 1
            expected = {position: held for position, held in expected.items() if position > mark_delete}
            assert cursor.mark_delete == mark_delete
            assert list(cursor.ranges()) == [held for _, held in sorted(expected.items())]
            assert all(len(page.ranges) <= size for page in cursor.pages)
            assert all(cursor.find(position) == held for position, held in expected.items())
            assert cursor.unacked == {
                name: count for name in "ab" if (count := sum(held.consumer_id == name for held in expected.values()))
            }
    finally:
        pages.MAX_PAGE_RANGES, pages.REST_AFTER = limits
