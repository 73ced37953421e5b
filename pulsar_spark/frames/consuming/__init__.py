"""A running DataFrame consumer: joined, called with deliveries, followed to its end."""
