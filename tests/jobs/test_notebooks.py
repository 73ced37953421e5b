"""Each notebook runs from top to bottom, and what it shows is right."""

import runpy
from pathlib import Path

import pytest

from tests.support.sessions import unchanged

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture(autouse=True)
def session_as_before(spark):
    with unchanged(spark):
        yield


def test_quickstart(spark, tmp_path, monkeypatch):
    monkeypatch.setenv("PULSAR_SPARK_ROOT", str(tmp_path / "root"))
    notebook = runpy.run_path(str(NOTEBOOKS / "quickstart.py"))
    assert notebook["published"].messages == 1_000
    assert sum(notebook["amounts"]) == 10 * sum(range(100))
    rows = notebook["cursors"].collect()
    assert [row.partition for row in rows] == [0, 1]
    assert sum(row.mark_delete_position + 1 for row in rows) == 1_000
    assert notebook["stats"]["subscriptions"]["accounting"]["msgBacklog"] == 0


def test_dead_letters(spark, tmp_path, monkeypatch):
    monkeypatch.setenv("PULSAR_SPARK_ROOT", str(tmp_path / "root"))
    notebook = runpy.run_path(str(NOTEBOOKS / "dead_letters.py"))
    assert sum(notebook["billed"]) == sum(number for number in range(200) if number % 10)
    assert [(row.cause, row.letters) for row in notebook["causes"].collect()] == [("max_redeliver_count", 20)]
    assert [notebook["planned"].selected, notebook["done"].sent, notebook["again"].sent] == [20, 20, 20]
    assert sum(notebook["repaired"]) == 20
    events = [row.event for row in notebook["story"].collect()]
    assert [events.count(name) for name in ("negatively_acknowledged", "dead_lettered")] == [2, 1]
    assert events[-1] == "dead_lettered"


def test_key_shared(spark, tmp_path, monkeypatch):
    """Anna's orders keep hashes from their new owners until she acknowledges them; the picture has every change of
    owners, and of each round all hashes with one owner."""
    monkeypatch.setenv("PULSAR_SPARK_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = runpy.run_path(str(NOTEBOOKS / "key_shared.py"))
    assert {(row.topic, row.waits_for) for row in notebook["before"]} == {("split", "anna"), ("ring", "anna")}
    assert {row.owner_name for row in notebook["before"]} == {"ben", "cleo", "dora"}
    assert notebook["after"] == []
    for topic in notebook["TOPICS"]:
        shares = notebook["shares"].query(f"topic == '{topic}'").set_index("consumer_name")["share"]
        assert set(shares.index) == {"anna", "cleo", "dora", "emil"} and 0.99 < shares.sum() < 1.01
        owned = notebook["owned"][notebook["owned"]["topic"] == topic]
        panel = notebook["panels"][notebook["TOPICS"].index(topic)]
        assert sum(bar.get_height() for bar in panel.patches) == (owned["end"] - owned["start"] + 1).sum()
        assert panel.get_ylim() == (0, owned["end"].max() + 1) and owned["end"].max() > 0
        for at in range(owned["first_round"].min(), owned["last_round"].max()):
            now = owned[(owned["first_round"] <= at) & (at < owned["last_round"])].sort_values("start")
            assert now["start"].tolist() == [0, *(now["end"] + 1)[:-1]], f"round {at}"
    assert Path(notebook["picture"]).stat().st_size > 10_000


def test_delayed_delivery(spark, tmp_path, monkeypatch):
    """Nothing comes early, or twice; what was cancelled does not come; the pictures show all of it."""
    monkeypatch.setenv("PULSAR_SPARK_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("PULSAR_SPARK_NOTEBOOK_MESSAGES", "2000")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = runpy.run_path(str(NOTEBOOKS / "delayed_delivery.py"))
    dues, cancelled = notebook["dues"], notebook["cancelled"]
    assert 0 < cancelled < 100 and len(dues) == 2000 - cancelled and notebook["delays"].min() >= 0
    assert dues.max() < notebook["begin"] + 0.99 * notebook["SECONDS"]
    arrivals, lateness, _, memory = notebook["panels"].flat
    assert [line.get_label() for line in arrivals.lines] == ["due", "delivered"]
    assert sum(bar.get_height() for bar in lateness.patches) == len(dues)
    assert len(memory.lines[0].get_xdata()) == len(notebook["looks"]) >= 2
    assert Path(notebook["picture"]).stat().st_size > 10_000


def test_chunked_messages(spark, tmp_path, monkeypatch):
    """A large row comes as one; an incomplete message is told, and comes when it is complete; the picture has each."""
    monkeypatch.setenv("PULSAR_SPARK_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("PULSAR_SPARK_NOTEBOOK_BYTES", str(6 * 1024 * 1024))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = runpy.run_path(str(NOTEBOOKS / "chunked_messages.py"))
    assert notebook["published"].messages == notebook["before"] == 1_000 and notebook["chunks"] == 2
    assert notebook["largest"] == (6 * 1024 * 1024, 2)
    assert (notebook["delivered_first"], notebook["delivered_then"]) == ([2, 4, 5], [6])
    ((producer, uuid, chunks, missing, _, is_open, _),) = notebook["waiting"]
    assert (producer, uuid, chunks, missing, is_open) == ("by hand", "a", 2, [(2, 2)], True)
    assert notebook["stats"]["msgBacklog"] == 0 and notebook["stats"]["msgOutCounter"] == 1_004
    assert len(notebook["panel"].collections[-1].get_offsets()) == 4
    assert Path(notebook["picture"]).stat().st_size > 10_000


def test_subscription_types(spark, tmp_path, monkeypatch):
    """Each type deals as it should, and what Anna did not acknowledge is Ben's after she left."""
    monkeypatch.setenv("PULSAR_SPARK_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = runpy.run_path(str(NOTEBOOKS / "subscription_types.py"))
    assert notebook["refused"] == [("exclusive", "ben")]
    got = {of: len(messages) for of, messages in notebook["received"].items()}
    assert got["exclusive", "anna"] == 40 and got["failover", "ben"] == 0
    for name in ("shared", "key-shared"):
        assert got[name, "anna"] + got[name, "ben"] == 40
    assert notebook["after"]["exclusive"] == notebook["after"]["failover"] == 35
    assert Path(notebook["picture"]).stat().st_size > 10_000


def test_acknowledgement(spark, tmp_path, monkeypatch):
    """Holes, a death after three deliveries, and mark-delete that jumps over what was acknowledged before."""
    monkeypatch.setenv("PULSAR_SPARK_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = runpy.run_path(str(NOTEBOOKS / "acknowledgement.py"))
    assert [(first, last) for first, last, status, _ in notebook["before"] if status == "pending"] == [(3, 3), (6, 7)]
    assert notebook["counts"] == [0, 1, 2] and notebook["mark_delete"] == 9
    assert notebook["story"].count("delivered") == 3 and "dead_lettered" in notebook["story"]
    assert Path(notebook["picture"]).stat().st_size > 10_000


def test_operating(spark, tmp_path, monkeypatch):
    """Two workers share the work; backlog, rates and rounds are drawn."""
    monkeypatch.setenv("PULSAR_SPARK_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("PULSAR_SPARK_NOTEBOOK_SECONDS", "10")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = runpy.run_path(str(NOTEBOOKS / "operating.py"))
    assert notebook["handled"]["anna"] > 0 and notebook["slow"]["msgBacklog"] >= 0
    assert [len(panel.lines) > 0 for panel in notebook["panels"]] == [True] * 3
    assert Path(notebook["picture"]).stat().st_size > 10_000


def test_sql_cookbook(spark, tmp_path, monkeypatch):
    """Each question has the answer that the run made."""
    monkeypatch.setenv("PULSAR_SPARK_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = runpy.run_path(str(NOTEBOOKS / "sql_cookbook.py"))
    assert {row.consumer_name for row in notebook["who"].collect() if row.event == "delivered"} == {"anna"}
    assert notebook["then"].first().mark_delete_position == 49
    assert [tuple(row) for row in notebook["backlogs"].collect()] == [("audit", 80), ("billing", 0)]
    assert notebook["topic"].count() == 50
    assert Path(notebook["picture"]).stat().st_size > 10_000


def test_every_notebook_is_tested():
    source = Path(__file__).read_text(encoding="utf-8")
    untested = [path.name for path in NOTEBOOKS.glob("*.py") if f'"{path.name}"' not in source]
    assert untested == []
