"""Dead letters as frames: listed, counted, and sent back."""
