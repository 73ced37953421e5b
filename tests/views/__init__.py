"""What people look at: the whole root at a glance."""
