"""The state of cursors in memory: their ranges, consumers and limits."""
