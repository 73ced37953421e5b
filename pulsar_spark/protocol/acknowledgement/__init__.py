"""The states of a cursor's entries, and the arithmetic of acknowledgement and mark-delete."""
