"""What the broker does by itself beside its rounds: time to live, quotas, housekeeping, background jobs."""
