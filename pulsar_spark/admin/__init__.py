"""Administration of a root from Python, with the verbs of ``pulsar-admin`` in snake case and without a JVM.

Calls that create or delete topics write the topic's table directly. Calls that change subscriptions are requests to the
broker and need a running one, because only the broker writes the state of subscriptions. Calls that read (``stats``,
``subscriptions``, ``peek_messages``, ``get_policies``) read the latest rows and need no broker.
"""

from pulsar_spark.admin.admin import Admin

__all__ = ["Admin"]
