"""What comes back, to whom, and how it is counted."""
