"""Administration of a root from Python, with the verbs of ``pulsar-admin`` in snake case and without a JVM.

Only changes to subscriptions and policies need a running broker.
"""

from pulsar_spark.admin.admin import Admin

__all__ = ["Admin"]
