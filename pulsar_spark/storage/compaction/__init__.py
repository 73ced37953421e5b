"""The compacted view of a topic: its files, reading from it, and the state of a compaction."""
