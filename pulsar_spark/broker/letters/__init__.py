"""Dead and retry letters: written after the round that caused them, or kept until they can be written."""
