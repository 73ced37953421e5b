"""Compacting topics: what a compaction covers, and doing it in memory or by a job of Spark's."""
