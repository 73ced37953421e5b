"""Pulsar's rules as pure functions and values: no Spark, no files, no clock. Each module names the source of its
rules."""
