"""Scripts written for the ``pulsar`` package run with the import and the address changed, and nothing else.

``scripts/`` has them as they are for a standalone broker of Pulsar.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT

SCRIPTS = Path(__file__).parent / "scripts"
PRINTED = {
    "payments": [
        "by hand: account-0 0 0",
        "booked: [('account-0', 1683), ('account-1', 1617), ('account-2', 1650)] True",
        "another schema is refused",
    ],
    "ledger": [
        "last sequence id: 104",
        "sums: [('anna', 7), ('bert', 0), ('cleo', 8)]",
        "after the third: [b'+8', b'-5']",
        "nothing more",
        "from the beginning: b'+10' persistent://public/default/ledger",
        "audited: [('anna', '7', 1700000000000), ('bert', '7', 1700000000000)] [True, True, True, True, True]",
        "left: b'-5' audit persistent://public/default/ledger",
        "sought: b'+5'",
        "view: [('anna', '-3'), ('bert', '-5'), ('cleo', '+8'), ('dora', None)] 3",
        "closed",
    ],
    "gateway": [
        "sent: [20, 20, 20, 20, 20]",
        "sums: [(0, 190), (1, 190), (2, 190), (3, 190), (4, 190)]",
        "read: True True",
        "nothing more",
        "closed: Result.AlreadyClosed",
    ],
}


def changed(source: str, service_url: str) -> str:
    """The script with its import and its address changed."""
    source = source.replace("import pulsar.asyncio\n", "import pulsar_spark.asyncio\n")
    return source.replace("import pulsar\n", "import pulsar_spark as pulsar\n").replace(
        "pulsar://localhost:6650", service_url
    )


@pytest.mark.parametrize("name", PRINTED)
def test_a_script_runs(broker, service_url, name):
    source = changed((SCRIPTS / f"{name}.py").read_text(), service_url)
    ran = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ran.stdout.splitlines() == PRINTED[name], ran.stderr
    assert ran.returncode == 0, ran.stderr
