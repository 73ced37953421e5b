"""However a notebook's process ends while a broker and a consumer run in it: it ends soon, aborts never, and hides
nobody's error."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


def tracebacks(stderr: str) -> list[str]:
    """All but those of Spark's own process for a source whose query was stopped while it started."""
    return [each for each in stderr.split("Traceback (")[1:] if "python_streaming_source_runner" not in each]


@pytest.mark.java
@pytest.mark.parametrize("how, code", [("falls_off", 0), ("raises", 1), ("stops_spark", 0)])
def test_the_end_of_a_notebook(tmp_path, how, code):
    done = subprocess.run(
        [sys.executable, "-m", "tests.jobs.notebook_ends", str(tmp_path / "root"), how],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=420,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == code, f"{done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-4000:]}"
    assert "Fatal Python error" not in done.stderr
    if how == "raises":
        assert 'KeyError: "the user\'s own"' in done.stderr.splitlines()
        assert len(tracebacks(done.stderr)) == 1
    if how == "falls_off":
        assert tracebacks(done.stderr) == []
        assert done.stdout.splitlines()[0] == "last cell"
    if how == "stops_spark":
        assert done.stdout.splitlines()[-3:] == ["ended by AlreadyClosed", "the block", "last cell"]
        assert "AlreadyClosed: Spark was stopped while subscription 's' was consumed" in done.stderr
