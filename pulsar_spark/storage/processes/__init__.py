"""Which processes are there and what they hold: leases, signs of life, and files that go with their process."""
