"""Whatever is written to the requests table, and whatever becomes of files, the broker serves everything else, and so
does the next one.

``PULSAR_SPARK_FUZZ`` says how many cases are drawn: few in the suite, thousands by hand (``PULSAR_SPARK_FUZZ=2000
pytest tests/broker/test_fuzz.py``).
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.broker.fuzzing import cases
from tests.broker.hostile import HostileRoot

CASES = int(os.environ.get("PULSAR_SPARK_FUZZ", "15"))


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("fuzz") / "root"
    HostileRoot(root)
    return root


@settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(case=cases)
def test_everything_else_goes_on(template, case):
    with tempfile.TemporaryDirectory(prefix="pulsar_spark_fuzz_") as folder:
        root = HostileRoot.on_copy(shutil.copytree(template, Path(folder) / "root"))
        for step in case:
            step.on(root)
            root.serve()
        root.holds()
