"""The broker as a running service: its query and micro-batches, its lease, its clients' signs of life, its process."""
