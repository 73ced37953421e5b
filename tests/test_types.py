"""A call, an attribute or a result of a wrong type is found here."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.mark.default
def test_the_package_passes_mypy():
    """A second run takes a second or two: mypy keeps what it found of each module in ``.mypy_cache``."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
