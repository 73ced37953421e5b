"""From what the broker sends to messages: reading deliveries, and handing messages out in order."""
