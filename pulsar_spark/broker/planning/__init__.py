"""The plan of a round: its rows, the prepared Spark queries that execute it, and what they return."""
