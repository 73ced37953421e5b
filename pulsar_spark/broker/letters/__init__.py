"""Dead and retry letters: written after the round that asked for them, or kept until they can be written."""
