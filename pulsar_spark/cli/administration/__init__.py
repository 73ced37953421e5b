"""Commands that look at or change topics, subscriptions, namespaces, policies and schemas."""
