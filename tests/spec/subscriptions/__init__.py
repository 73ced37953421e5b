"""Who may connect, who receives, where a subscription starts and ends."""
