"""A picture that shows other numbers than the rows it is drawn from is seen here: the examples of the documentation."""

import runpy
from itertools import pairwise

import matplotlib
import pytest

from pulsar_spark import plots
from tests.docs.pages import SITE

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def examples():
    return runpy.run_path(str(SITE / "pictures" / "draw_plots.py"))


@pytest.fixture
def drawn(examples):
    """The axes of an example by the name of its function; their figures are closed at the end."""
    yield lambda name: examples["EXAMPLES"][name]()
    matplotlib.pyplot.close("all")


def test_every_public_function_has_an_example(examples):
    assert sorted(examples["EXAMPLES"]) == plots.__all__


def test_the_backlog_is_what_was_published_and_not_acknowledged(drawn, examples):
    lines = {line.get_label(): line.get_ydata() for line in drawn("backlog").lines}
    rows = examples["progress"]()
    for name, of_one in rows.groupby("subscription"):
        assert list(lines[name]) == list(of_one["published"] - of_one["acknowledged"])


def test_rates_are_what_was_added_each_second(drawn, examples):
    lines = {line.get_label(): list(line.get_ydata()) for line in drawn("rates").lines}
    rows = examples["progress"]()
    mail = rows[rows["subscription"] == "mail"]
    for name in ("published", "delivered", "acknowledged"):
        assert lines[name] == [0, *(later - before for before, later in pairwise(mail[name]))]


def test_a_second_without_a_round_is_a_gap_between_brokers(drawn):
    axes = drawn("rounds")
    first, second = ([*line.get_ydata()] for line in axes.lines)
    assert len(first) == 30 and len(second) == 26 and {*first} == {7, 8} and second[-1] == 1
    assert axes.get_ylim()[0] == 0


def test_bars_lie_where_each_consumer_received(drawn):
    axes = drawn("who_got_what")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["anna", "ben", "carl"]
    plain, hatched = [], []
    for each in axes.collections:
        bars = [tuple(map(float, path.get_extents().intervalx)) for path in each.get_paths()]
        (hatched if each.get_hatch() else plain).extend(bars)
    assert sorted(hatched) == [(45, 50), (50, 55)]
    assert sorted(plain) == [(0, 20), (20, 35), (35, 55), (55, 70), (70, 90), (90, 100)]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["delivered again"]


def test_owners_cover_all_hashes_in_each_round(drawn):
    axes = drawn("hash_owners")
    for number in (1, 13, 26, 59):
        bars = [bar for bar in axes.patches if bar.get_x() <= number < bar.get_x() + bar.get_width()]
        assert sum(bar.get_height() for bar in bars) == 65_536
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["anna", "ben", "carl"]


def test_every_delayed_message_is_in_a_bar(drawn):
    axes = drawn("due_times")
    assert f": {sum(int(bar.get_height()) for bar in axes.patches):,}" in axes.get_title()


def test_an_event_looks_alike_in_every_picture(drawn):
    shown = {each.get_label(): tuple(each.get_facecolor()[0][:3]) for each in drawn("message_history").collections}
    assert set(shown) == {"delivered", "acknowledged", "negatively_acknowledged", "dead_lettered"}
    for event, colour in shown.items():
        assert matplotlib.colors.to_rgb(plots.drawing.EVENT_MARKS[event][1]) == pytest.approx(colour)
