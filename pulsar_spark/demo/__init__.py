"""The demo: a year of flights through all types of subscription, with an account of every message at the end.

Each flight from New York in 2013 is a message: key = tail number, event time = scheduled departure, payload = the
row as JSON. A DataFrame producer publishes them to a topic of four partitions and one without; the broker and each
consumer are processes. On Key_Shared, each aircraft's flights arrive in order although consumers join, leave and
are killed. Flights without a tail number go to the owner of the hash of NONE_KEY.

:func:`run.run_demo` compares what consumers noted before acknowledging with the broker's counters. Nothing is
imported here, because the consumers' processes need no Spark.
"""
