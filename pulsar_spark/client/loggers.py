"""Logger arguments of the ``pulsar`` package: accepted, so that scripts need no change. Nothing here writes a log of its own."""
from pulsar_spark.client.arguments import check_type
from pulsar_spark.client.enums import LoggerLevel


class ConsoleLogger:
    """Names a level for a log on standard output."""

    def __init__(self, log_level: LoggerLevel = LoggerLevel.Info):
        check_type(LoggerLevel, log_level, "log_level")
        self.log_level = log_level


class FileLogger:
    """Names a level and a file for a log."""

    def __init__(self, log_level: LoggerLevel, log_file: str):
        check_type(LoggerLevel, log_level, "log_level")
        check_type(str, log_file, "log_file")
        self.log_level = log_level
        self.log_file = log_file
