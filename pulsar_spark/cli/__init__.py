"""The command line: it parses arguments and prints. Its verbs are those of ``pulsar-admin`` and ``pulsar-client``."""

from pulsar_spark.cli.main import app, main

__all__ = ["app", "main"]
