"""Spark applications that tests start in a process of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def said_by(module: str, *arguments: str, timeout_seconds: int = 600) -> dict:
    """The line of JSON with which ``python -m module`` ends; AssertionError with what it printed where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-5000:]}"
    return json.loads(done.stdout.splitlines()[-1])
