"""Pulsar's rules as pure functions and values: no Spark, no files, no clock. Each module says which rules, and where
they come from."""
