"""Policies by name, and what they govern: expiry, retention, deduplication, compaction."""
