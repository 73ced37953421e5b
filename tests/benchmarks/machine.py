"""What the figures were measured on."""

import os
import platform
import re
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("pulsar_spark", "pyspark", "delta-spark", "deltalake", "pyarrow")


def describe_machine() -> dict[str, str]:
    """Cores, memory, processor, date, versions and what else the machine was doing."""
    return {
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "processor": _processor(),
        "system": platform.platform(),
        "Python": platform.python_version(),
        "Java": _java(),
        **{name: _version(name) for name in PACKAGES},
        "load before": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def _processor() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except FileNotFoundError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    try:
        said = subprocess.run(
            [str(Path(home) / "bin" / "java") if home else "java", "-version"],
            capture_output=True,
            text=True,
            check=False,
        ).stderr
    except OSError:
        return "none on the path"
    return said.splitlines()[0] if said else "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "from the working tree"
