"""Base classes of Pulsar Functions, with the names of the ``pulsar`` package. Nothing here runs functions.

Modules with functions can be imported, and the functions tested. To process messages, use a consumer, or
``pulsar_spark.frames.consume``.
"""
