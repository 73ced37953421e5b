"""What an acknowledgement does to a cursor."""
