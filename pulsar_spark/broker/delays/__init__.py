"""Delayed entries: the delay index as the broker uses it, promotion, and the due lane of a cursor."""
