"""Takes the plan's result into memory and says what changed, as rows."""
