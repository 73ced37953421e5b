"""Schemas of topics, and payloads as they are stored and shown."""
