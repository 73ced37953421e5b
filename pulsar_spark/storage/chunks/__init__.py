"""Chunked messages in storage: which entries are chunks of one message, and their payloads as one."""
