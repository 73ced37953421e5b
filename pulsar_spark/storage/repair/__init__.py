"""Finding and mending damage of a root, and bringing a root to this release's layout."""
