"""Commands that look at or change topics, subscriptions, namespaces, tenants, brokers and schemas."""
