"""The rows that a round is planned from: which entries of which cursors it touches, and what is known of them."""
