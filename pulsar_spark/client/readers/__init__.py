"""Readers and table views, which read a topic from its table without a subscription."""
