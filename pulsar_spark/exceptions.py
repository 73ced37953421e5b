"""The errors under the name the ``pulsar`` package has for their module."""
from pulsar_spark.errors import *  # noqa: F401,F403 - this module is that list
