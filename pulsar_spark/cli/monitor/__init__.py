"""What a look at the whole root shows: the table of its subscriptions, thresholds, and the live view."""
