"""Delayed entries: the delay index as the broker uses it, and what waits or comes due for a cursor."""
