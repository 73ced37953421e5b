"""Commands about dead letters, and letters that could not be written yet."""
