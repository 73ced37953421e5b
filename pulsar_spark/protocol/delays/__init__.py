"""Deliver times of entries, and how instants and durations are counted."""
