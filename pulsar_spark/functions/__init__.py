"""Pulsar Functions, by the names of the ``pulsar`` package; there is no process that would run them.

They can be derived from and made, so that a module which has functions beside producers and consumers is of use and its
functions can be tested. What a function does is done by a consumer, or by a DataFrame consumer
(``pulsar_spark.frames.consume``).
"""
