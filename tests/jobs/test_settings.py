"""The settings file for spark-submit says what the package sets where it starts Spark itself."""

from importlib.metadata import version
from pathlib import Path

from pulsar_spark.storage import session

CONF = Path(__file__).parents[2] / "conf" / "spark-defaults.conf"


def settings_file() -> dict[str, str]:
    lines = (line.strip() for line in CONF.read_text().splitlines())
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))


def test_the_file_and_the_session_agree():
    given = settings_file()
    for name, value in session._SETTINGS.items():
        assert given[name] == value
    assert given["spark.jars.excludes"] == session._NOT_NEEDED
    assert given["spark.jars.packages"].endswith(f":{version('delta-spark')}")
