"""Each client's connection to the broker: requests out, replies and deliveries in, quotas, signs of life."""
