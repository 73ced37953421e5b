"""Loggers of a client, by default Python's ``pulsar_spark.client``. Payloads are never logged.

``log_conf_file_path`` names JSON settings for ``logging.config.dictConfig``, not for log4cxx.
"""

import json
import logging
import logging.config
import sys

from pulsar_spark.client.arguments import check_type
from pulsar_spark.client.model.enums import LoggerLevel
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.link.broker_watch import NAME

_LEVELS = {
    LoggerLevel.Debug: logging.DEBUG,
    LoggerLevel.Info: logging.INFO,
    LoggerLevel.Warn: logging.WARNING,
    LoggerLevel.Error: logging.ERROR,
}
_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)-5s [%(thread)d] %(module)s:%(lineno)d | %(message)s"


class ConsoleLogger:
    """Write log lines of ``log_level`` and above to standard output."""

    def __init__(self, log_level: LoggerLevel = LoggerLevel.Info):
        check_type(LoggerLevel, log_level, "log_level")
        self.log_level = log_level


class FileLogger:
    """Append log lines of ``log_level`` and above to ``log_file``."""

    def __init__(self, log_level: LoggerLevel, log_file: str):
        check_type(LoggerLevel, log_level, "log_level")
        check_type(str, log_file, "log_file")
        self.log_level = log_level
        self.log_file = log_file


def open_logger(
    logger: logging.Logger | ConsoleLogger | FileLogger | None, conf_file: str | None = None
) -> logging.Logger:
    """The logger of one client; :class:`InvalidConfiguration` for an unwritable file or invalid settings."""
    if conf_file is not None:
        _configure(conf_file)
    if isinstance(logger, logging.Logger):
        return logger
    if logger is None:
        return logging.getLogger(NAME)
    if isinstance(logger, FileLogger):
        try:
            handler: logging.Handler = logging.FileHandler(logger.log_file, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InvalidConfiguration(f"log file {logger.log_file!r} cannot be written: {error}") from error
    else:
        handler = _StandardOutput()
    handler.setFormatter(logging.Formatter(_FORMAT, "%Y-%m-%d %H:%M:%S"))
    opened = logging.Logger(NAME, _LEVELS[logger.log_level])
    opened.addHandler(handler)
    return opened


def close_logger(opened: logging.Logger, logger: logging.Logger | ConsoleLogger | FileLogger | None) -> None:
    """Close what :func:`open_logger` opened."""
    if isinstance(logger, (ConsoleLogger, FileLogger)):
        for handler in list(opened.handlers):
            handler.close()
            opened.removeHandler(handler)


def _configure(conf_file: str) -> None:
    try:
        with open(conf_file, encoding="utf-8") as file:
            settings = json.load(file)
        logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, **settings})
    except (OSError, ValueError, TypeError, AttributeError, ImportError) as error:
        raise InvalidConfiguration(
            f"log_conf_file_path {conf_file!r}: {error}; give a file with the settings of "
            "logging.config.dictConfig as JSON, "
            "or leave it out and give a logger"
        ) from error


class _StandardOutput(logging.StreamHandler):
    """Writes to the present standard output, even if it was redirected."""

    def __init__(self):
        logging.Handler.__init__(self)

    @property
    def stream(self):
        return sys.stdout
