"""Commands about messages: produce and consume them, and those that wait, are incomplete or were set aside."""
