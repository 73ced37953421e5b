"""Logging of commands and jobs to standard error, as text or a line of JSON per record."""

import argparse
import functools
import inspect
import json
import logging
import os
import traceback
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from enum import StrEnum
from typing import Annotated

import typer

from pulsar_spark.cli.java_stderr import separate_standard_error
from pulsar_spark.errors import InvalidConfiguration

LEVEL_VARIABLE, FORMAT_VARIABLE = "PULSAR_SPARK_LOG_LEVEL", "PULSAR_SPARK_LOG_FORMAT"
PACKAGE = "pulsar_spark"
_OWN_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}


class LogLevel(StrEnum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class LogFormat(StrEnum):
    text = "text"
    json = "json"


LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option(
        "--log-level", envvar=LEVEL_VARIABLE, show_envvar=True, case_sensitive=False, help="Log this level and above."
    ),
]
LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option(
        "--log-format",
        envvar=FORMAT_VARIABLE,
        show_envvar=True,
        case_sensitive=False,
        help="Log as text, or one line of JSON per record.",
    ),
]


def set_up_logging(
    level: str | None = None, format: str | None = None, *, default_level: str = LogLevel.warning
) -> None:
    """Log to standard error, with level and format as given, else from the environment, else *default_level* and text.

    Other packages log warnings only, py4j nothing: it logs whatever it raises.
    """
    separate_standard_error()
    level = _chosen(LogLevel, level, LEVEL_VARIABLE, default_level)
    handler = logging.StreamHandler()
    is_json = _chosen(LogFormat, format, FORMAT_VARIABLE, LogFormat.text) is LogFormat.json
    handler.setFormatter(JsonFormatter() if is_json else TextFormatter())
    handler.set_name(PACKAGE)
    handler.addFilter(_is_not_of_py4j)
    root = logging.getLogger()
    root.handlers = [kept for kept in root.handlers if kept.get_name() != PACKAGE] + [handler]
    logging.getLogger(PACKAGE).setLevel(level.value.upper())
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """py4j also uses the root logger."""
    return os.path.basename(os.path.dirname(record.pathname)) != "py4j"


def logs(command: Callable) -> Callable:
    """Add ``--log-level`` and ``--log-format`` to a command that lacks them."""
    own = inspect.signature(command).parameters
    if "log_level" in own:
        return command

    @functools.wraps(command)
    def run(log_level: str | None = None, log_format: str | None = None, **given):
        set_up_logging(log_level, log_format)
        return command(**given)

    options = {"log_level": LogLevelOption, "log_format": LogFormatOption}
    added = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=option)
        for name, option in options.items()
    ]
    return with_parameters(run, [*own.values(), *added])


def with_parameters(command: Callable, parameters: Sequence[inspect.Parameter]) -> Callable:
    """Let typer offer these *parameters* as the options of *command*."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def let_all_log(group: typer.Typer) -> None:
    for command in group.registered_commands:
        command.callback = command.callback and logs(command.callback)
    for each in group.registered_groups:
        if each.typer_instance is not None:
            let_all_log(each.typer_instance)


def add_logging_arguments(parser: argparse.ArgumentParser) -> None:
    for name, members, variable in (
        ("--log-level", LogLevel, LEVEL_VARIABLE),
        ("--log-format", LogFormat, FORMAT_VARIABLE),
    ):
        parser.add_argument(
            name,
            type=str.lower,
            choices=[member.value for member in members],
            help=f"also set by the variable {variable}",
        )


def set_up_job_logging(given: argparse.Namespace) -> None:
    """By default from "info" on."""
    set_up_logging(given.log_level, given.log_format, default_level=LogLevel.info)


def _chosen(members: type[StrEnum], given: str | None, variable: str, default: str) -> StrEnum:
    text = given or os.environ.get(variable) or default
    try:
        return members(text.lower())
    except ValueError:
        raise InvalidConfiguration(
            f"{variable}={text!r}: give one of {', '.join(member.value for member in members)}"
        ) from None


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.123Z INFO pulsar_spark.broker.runner: message``, then the traceback, if any."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage().translate(_CONTROLS)}"
        return line + (f"\n{_traceback(record)}" if record.exc_info else "")


class JsonFormatter(logging.Formatter):
    """One JSON object per line, with the record's extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        facts = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        facts |= {name: value for name, value in vars(record).items() if name not in _OWN_FIELDS}
        if record.exc_info:
            facts["exception"] = _traceback(record)
        return json.dumps(facts, default=str)


def _time(record: logging.LogRecord) -> str:
    instant = datetime.fromtimestamp(record.created, timezone.utc)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _traceback(record: logging.LogRecord) -> str:
    return "".join(traceback.format_exception(*record.exc_info)).rstrip() if record.exc_info else ""
