"""Chunked messages on a cursor: which are complete, and what becomes of those that never are."""
