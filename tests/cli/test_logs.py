"""Logging of commands and jobs: level and format by option, by variable, and what a line looks like."""

import argparse
import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from typer.testing import CliRunner

from pulsar_spark.broker.service import process
from pulsar_spark.cli import app
from pulsar_spark.cli.common import errors_as_one_line
from pulsar_spark.cli.logs import LEVEL_VARIABLE, add_logging_arguments, set_up_job_logging, set_up_logging
from pulsar_spark.errors import InvalidConfiguration

PROJECT = Path(__file__).parents[2]
log = logging.getLogger("pulsar_spark.anything")


@pytest.fixture(autouse=True)
def environment(monkeypatch) -> None:
    """The variables are not set."""
    monkeypatch.delenv("PULSAR_SPARK_LOG_LEVEL", raising=False)
    monkeypatch.delenv("PULSAR_SPARK_LOG_FORMAT", raising=False)


def fail() -> None:
    try:
        raise KeyError("cause")
    except KeyError:
        log.exception("it failed\nforged line", extra={"messages": 3})


def test_text_is_a_line_with_its_traceback_behind(capsys):
    set_up_logging("info", "text")
    log.debug("not shown")
    fail()
    first, *rest = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ERROR pulsar_spark\.anything: it failed\\x0aforged line", first
    )
    assert rest[0].startswith("Traceback") and rest[-1] == "KeyError: 'cause'"


def test_json_is_an_object_a_line(capsys):
    set_up_logging("debug", "json")
    log.debug("shown, %s", "é\n")
    fail()
    shown, failed = map(json.loads, capsys.readouterr().err.splitlines())
    assert (shown["level"], shown["logger"], shown["message"]) == ("DEBUG", "pulsar_spark.anything", "shown, é\n")
    assert (failed["messages"], failed["exception"].splitlines()[-1]) == (3, "KeyError: 'cause'")
    assert set(shown) == {"time", "level", "logger", "message"}


def test_variables_are_the_default_and_options_go_before(capsys, monkeypatch):
    monkeypatch.setenv("PULSAR_SPARK_LOG_LEVEL", "ERROR")
    monkeypatch.setenv("PULSAR_SPARK_LOG_FORMAT", "json")
    set_up_logging()
    log.warning("not shown")
    set_up_logging("warning")
    log.warning("shown once, though logging was set up twice")
    assert [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()] == [
        "shown once, though logging was set up twice"
    ]


def test_a_variable_that_names_no_level_is_refused_by_name(monkeypatch):
    monkeypatch.setenv(LEVEL_VARIABLE, "loud")
    with pytest.raises(
        InvalidConfiguration, match="PULSAR_SPARK_LOG_LEVEL='loud': give one of debug, info, warning, error"
    ):
        set_up_logging()


def test_what_py4j_logs_is_not_shown_for_it_is_raised_as_well(capsys):
    set_up_logging("debug")
    logging.getLogger("py4j.clientserver").error("There was an exception")
    logging.getLogger("another").warning("shown")
    assert capsys.readouterr().err.count("\n") == 1


def test_a_job_takes_the_options_and_says_info_without_them(capsys):
    parser = argparse.ArgumentParser()
    add_logging_arguments(parser)
    set_up_job_logging(parser.parse_args([]))
    log.info("it serves")
    set_up_job_logging(parser.parse_args(["--log-level", "warning", "--log-format", "json"]))
    log.info("not shown")
    assert capsys.readouterr().err.splitlines()[0].endswith("INFO pulsar_spark.anything: it serves")


@pytest.mark.parametrize("given", [["--log-level", "info", "--log-format", "json"], ["--log-format", "JSON"]])
def test_the_broker_says_that_it_starts_and_stops_and_what_its_package_says(monkeypatch, tmp_path, given):
    def run_broker(root, **options):
        logging.getLogger("pulsar_spark.broker.runner").info("broker x stands by")

    monkeypatch.setattr(process, "run_broker", run_broker)
    done = CliRunner().invoke(app, ["broker", "--root", str(tmp_path), *given], catch_exceptions=False)
    assert [json.loads(line)["message"] for line in done.stderr.splitlines()] == [
        f"broker of root {tmp_path} starts",
        "broker x stands by",
        f"broker of root {tmp_path} stopped",
    ]
    assert done.stdout == ""


def test_an_option_that_names_no_level_is_wrong_usage():
    assert CliRunner().invoke(app, ["broker", "--root", "there", "--log-level", "loud"]).exit_code == 2


def test_the_package_configures_nothing_by_itself():
    check = (
        "import logging, pulsar_spark, pulsar_spark.admin, pulsar_spark.frames, pulsar_spark.broker.runner; "
        "assert not logging.getLogger().handlers and not logging.getLogger('pulsar_spark').handlers"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


class _Printed(list):
    """A JVM's standard error, as py4j reaches it."""

    java = property(lambda self: self)
    lang = System = err = java

    def print(self, text: str) -> None:
        self.append(text)


def test_under_spark_submit_standard_error_is_that_of_the_jvm(monkeypatch, capsys):
    printed = _Printed()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda: None)
    monkeypatch.setattr(SparkContext, "_jvm", printed)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    set_up_logging("info", "text")
    log.info("told")
    print("to standard output")
    set_up_logging("info", "text")
    log.info("again")
    assert [line.partition(": ")[2] for line in "".join(printed).splitlines()] == ["told", "again"]
    assert capsys.readouterr() == ("to standard output\n", "")

    def is_gone() -> None:
        raise Py4JNetworkError("gone")

    monkeypatch.setattr(SparkContext, "_ensure_initialized", is_gone)
    log.info("kept")
    assert capsys.readouterr().err.endswith("kept\n")


def test_a_jvm_that_has_ended_is_one_line():
    for failed, is_one_line in (
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (Py4JError("An error occurred while calling o1.x"), True),
        (Py4JError("An error occurred while calling o1.x. Trace:\njava.lang.Error"), False),
    ):
        with pytest.raises((SystemExit, Py4JError)) as ended, errors_as_one_line():
            raise failed
        assert isinstance(ended.value, SystemExit) == is_one_line
        assert not is_one_line or ("JVM has ended" in ended.value.code and "\n" not in ended.value.code)
