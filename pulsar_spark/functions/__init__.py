"""Pulsar Functions, with the names of the ``pulsar`` package. No process runs them.

The classes can be derived from and instantiated. A module that has functions beside producers and consumers can so be
imported, and its functions tested. To process messages, use a consumer, or a DataFrame consumer
(``pulsar_spark.frames.consume``).
"""
