"""``python -m tests.conformance FOLDER [--store s3] [--out FILE] [options of run_scenarios.py]``: run the scenarios of
a folder (``run_scenarios.py``, ``compare.py``, ``reference.json``) on a new root, on the disk or on an S3 server, with
a broker that plans without Spark, and compare what comes of them with what was recorded. It ends with 1 where one
differs that README.md, beside this, does not name. Scenarios, broker and server are a process each."""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from pulsar_spark.testing.plain_broker import PlainBroker
from tests.benchmarks.store import server
from tests.support.applications import PROJECT
from tests.support.object_store import LOCAL, S3, asking, new_root

PATIENCE = {LOCAL: 3, S3: 5}
"""How much longer waits are than those that were recorded: a message takes some 75 calls of a store."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--store", choices=(LOCAL, S3), default=LOCAL)
    parser.add_argument("--out", type=Path)
    given, more = parser.parse_known_args()
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        root = scratch / "root"
        if given.store == S3:
            stack.enter_context(asking(stack.enter_context(server())))
            root = new_root()
        stack.enter_context(PlainBroker(root, housekeeping=True))
        out = str(given.out or scratch / "ours.json")
        ours = ["--module", "pulsar_spark", "--admin", "pulsar_spark.admin:Admin", "--out", out]
        patience = ["--patience", str(PATIENCE[given.store])]
        run([given.folder / "run_scenarios.py", *ours, "--service-url", f"delta:{root}", *patience, *more])
        compared = run([given.folder / "compare.py", given.folder / "reference.json", out], stdout=subprocess.PIPE)
    print(compared.stdout, end="")
    unknown = sorted({*re.findall(r"^(?:FAIL|ERROR) +(\w+)", compared.stdout, re.MULTILINE)} - named())
    print(f"differ, and are not named in README.md: {', '.join(unknown) or 'none'}")
    return bool(unknown) or not compared.stdout


def named() -> set[str]:
    """The scenarios whose outcome is known to differ, in the first column of the first table."""
    table = (Path(__file__).parent / "README.md").read_text().partition("\n|")[2].partition("\n\n")[0]
    return {*re.findall(r"^\| `(\w+)`", table, re.MULTILINE)}


def run(command: list, **options) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.run([sys.executable, *map(str, command)], check=False, text=True, env=environment, **options)


if __name__ == "__main__":
    sys.exit(main())
