"""Consumers and their subscriptions: settings, topics followed, moves of the cursor, and letters."""
