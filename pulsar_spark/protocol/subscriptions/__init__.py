"""Rules of subscriptions: who may join, who is active, who is served next, and how much each gets."""
