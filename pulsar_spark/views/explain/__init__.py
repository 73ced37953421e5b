"""One message: what became of it, and why it is where it is on each subscription."""
