"""Administration of a root from Python, with the verbs of ``pulsar-admin`` in snake case and no JVM.

What a topic *is* (its table) is created and deleted here; what a subscription *becomes* is decided by the broker alone,
so those calls are requests and need one running. Reading (``stats``, ``subscriptions``, ``peek_messages``,
``get_policies``) looks at the latest rows and needs none.
"""

from pulsar_spark.admin.admin import Admin

__all__ = ["Admin"]
