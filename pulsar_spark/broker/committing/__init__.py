"""The rows of a round: one function for each kind, their Arrow tables, and snapshots."""
