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


def test_every_notebook_is_tested():
    assert [path.name for path in sorted(NOTEBOOKS.iterdir()) if path.suffix == ".py"] == ["quickstart.py"]
