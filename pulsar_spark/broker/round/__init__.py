"""A round from its requests to its commit: planned, absorbed, written, and run again without what made it fail."""
