"""A round from its requests to its commit, and its repetition without what made it fail."""
