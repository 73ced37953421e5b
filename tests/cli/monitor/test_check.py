"""A check that is silent where it should warn, or an output that another program cannot read, is found here."""

import json

import pyarrow as pa
import pytest
from click.testing import Result
from deltalake.exceptions import DeltaError
from typer.testing import CliRunner

from pulsar_spark.cli import app
from pulsar_spark.cli.monitor.thresholds import MEASURES, Status, findings, threshold
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.storage.processes.lease import BundleLease
from tests.support.states import subscription_state
from tests.support.waiting import send

AGE, UNACKED, BACKLOG = MEASURES


def check(root, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["check", "--root", str(root), *arguments])


@pytest.mark.parametrize(
    "measure, text, expected",
    [
        (AGE, "5m", (None, 300)),
        (AGE, "500ms,2h", (0.5, 7200)),
        (UNACKED, "10,", (10, None)),
        (BACKLOG, ",7", (None, 7)),
    ],
)
def test_a_threshold_has_a_critical_value_and_may_have_a_warning(measure, text, expected):
    assert threshold(measure, text)[1:] == expected


@pytest.mark.parametrize(
    "measure, text", [(AGE, "soon"), (BACKLOG, "1,2,3"), (BACKLOG, ","), (UNACKED, "9,3"), (UNACKED, "-1")]
)
def test_a_threshold_that_cannot_be_is_refused(measure, text):
    with pytest.raises(InvalidConfiguration, match="--"):
        threshold(measure, text)


@pytest.mark.parametrize(
    "value, expected", [(4, Status.OK), (5, Status.WARNING), (8, Status.WARNING), (9, Status.CRITICAL)]
)
def test_values_reach_thresholds(value, expected):
    states = [subscription_state(backlog=value), subscription_state()]
    worst, fine = findings(states, [threshold(BACKLOG, "5,9")])
    assert (worst.status, fine.status) == (expected, Status.OK)
    assert (f"{expected.name.lower()} from" in worst.text) == bool(expected)


def test_a_backlog_without_age_is_not_old():
    assert findings([subscription_state(backlog=9)], [threshold(AGE, "0s,1s")])[0].value == 0


@pytest.fixture
def root(pulsar_client, pulsar_broker, pulsar_clock):
    """A topic with a backlog of three that is a minute old, and one of none."""
    pulsar_client.subscribe("orders", "bill|ing").close()
    pulsar_client.subscribe("quiet", "s").close()
    send(pulsar_client, "orders", *"abc")
    pulsar_broker.settle()
    pulsar_clock.advance(minutes=1)
    return pulsar_broker.layout.root


def test_exit_codes(root, pulsar_broker):
    assert check(root, "--backlog", "4", "--broker").stdout == "OK 2 subscriptions checked\n"
    assert check(root, "--broker").stdout == "OK a broker serves\n"
    warning, critical = check(root, "--backlog", "3,9"), check(root, "--backlog-age", "1s,30s", "--backlog", "3,9")
    assert (warning.exit_code, warning.stdout) == (1, "WARNING orders bill|ing: backlog 3, warning from 3\n")
    assert critical.exit_code == 2 and [line.split()[0] for line in critical.stdout.splitlines()] == [
        "CRITICAL",
        "WARNING",
    ]
    assert check(root, "quiet", "--backlog", "1").exit_code == 0
    assert check(root, "-s", "s", "--backlog", "1").exit_code == 0
    pulsar_broker.close()
    without = check(root, "--broker")
    assert (without.exit_code, without.stdout) == (2, "CRITICAL no broker serves the root\n")


def test_a_lease_that_nobody_renews_is_no_broker(root, monkeypatch):
    monkeypatch.setattr(BundleLease, "sure_holder", lambda lease: None)
    assert check(root, "--broker").stdout == "CRITICAL no broker serves the root\n"


def test_what_cannot_be_checked_is_unknown(root, tmp_path):
    for arguments in (["none", "--broker"], ["-s", "none", "--backlog", "1"], [], ["--backlog", "many"]):
        assert (check(root, *arguments).exit_code, check(root, *arguments).stdout[:7]) == (3, "UNKNOWN")
    found = check(tmp_path, "--broker", "--format", "nagios")
    assert (found.exit_code, found.stdout[:24]) == (3, "PULSAR UNKNOWN - NotARoo")
    assert 'pulsar_spark_check_status{check="broker"} 3' in check(tmp_path, "--broker", "--format", "prometheus").stdout


@pytest.mark.parametrize("error", [OSError, DeltaError, pa.ArrowInvalid])
def test_a_disk_that_fails_is_unknown(root, monkeypatch, error):
    def fail(*_):
        raise error("the disk\nis gone")

    monkeypatch.setattr("pulsar_spark.cli.monitor.check.look", fail)
    found = check(root, "--broker")
    assert (found.exit_code, found.stdout) == (3, f"UNKNOWN {error.__name__}: the disk\\nis gone\n")


def test_formats_for_programs(root):
    given = "--backlog-age", "1s,30s", "--backlog", "4,9", "--broker"
    found = json.loads(check(root, *given, "--json").stdout)
    assert (found["status"], found["checked"]) == ("critical", 2)
    (finding,) = found["findings"]
    assert (finding["check"], finding["subscription"]) == ("backlog_age", "bill|ing") and finding["value"] >= 60
    line = check(root, *given, "--format", "nagios").stdout
    text, values = line.split(" | ")
    assert text.startswith("PULSAR CRITICAL - orders bill/ing: backlog age 60 s, critical from 30 s")
    assert values.split()[0].endswith("s;1;30") and values.split()[1] == "backlog=3;4;9"
    exposed = check(root, *given, "--format", "prometheus").stdout.splitlines()
    assert 'pulsar_spark_check_status{check="backlog"} 0' in exposed
    worst = (
        'pulsar_spark_check_value{check="backlog",topic="persistent://public/default/orders",subscription="bill|ing"} 3'
    )
    assert worst in exposed
