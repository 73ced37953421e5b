"""Each notebook runs from top to bottom, and what it shows is right."""

import runpy
from pathlib import Path

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


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


def test_every_notebook_is_tested():
    assert [path.name for path in sorted(NOTEBOOKS.iterdir()) if path.suffix == ".py"] == [
        "dead_letters.py",
        "quickstart.py",
    ]
