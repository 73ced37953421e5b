"""Administration of a root from Python, with the verbs of ``pulsar-admin`` in snake case and without a JVM.

Topics are created and deleted directly in their tables, and rows are read without a broker. Changes to
subscriptions and policies are requests to a running broker, which alone writes their state.
"""

from pulsar_spark.admin.admin import Admin

__all__ = ["Admin"]
