"""Delta tables that take each message of a subscription exactly once."""
