"""The demo: a year of flights through all types of subscription, with an account of every message at the end.

Each flight from New York in 2013 is a message: key = tail number, event time = scheduled departure, payload = the row
as JSON. :func:`run.run_demo` runs it.
"""
