"""Chunked messages: how payloads are split and joined, and how many incomplete messages are kept."""
