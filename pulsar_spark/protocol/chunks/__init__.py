"""Chunked messages: how a payload is split and put together, and how much of incomplete ones is kept."""
