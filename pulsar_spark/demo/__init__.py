"""The demo: a year of flights through all kinds of subscription, with an account of every message at the end.

Each flight that left New York in 2013 is a message: key = tail number, event time = scheduled departure, payload = the
row as JSON. A DataFrame producer publishes all of them to a topic of four partitions and to one without; a broker runs
in a process of its own, every consumer in one more. The Key_Shared subscription goes by the key: every aircraft's
flights come in order, though its consumers join, leave and are killed. Flights without a tail number have no key; they
go, in order too, where all messages without one go, to the owner of the hash of NONE_KEY.

The account is made from what the consumers wrote down before they acknowledged it, and held against what the broker
counted. It starts with :func:`run.run_demo`; nothing is imported here, because the consumers' processes need no Spark.
"""
