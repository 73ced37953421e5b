"""The demo: a year of flights through all types of subscription, with an account of every message at the end.

Each flight from New York in 2013 is a message: key = tail number, event time = scheduled departure, payload = the
row as JSON. The broker and each consumer are processes; consumers join, leave and are killed. :func:`run.run_demo`
compares their notes with the broker's counters. Nothing is imported here, because the consumers' processes need no
Spark.
"""
