"""Finding and mending damage of a root."""
