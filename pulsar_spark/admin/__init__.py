"""Administration of a root from Python, with the verbs of ``pulsar-admin`` in snake case and without a JVM.

Topics are created and deleted directly. Changes to subscriptions and policies need a running broker; reading does
not.
"""

from pulsar_spark.admin.admin import Admin

__all__ = ["Admin"]
