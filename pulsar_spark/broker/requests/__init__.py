"""Requests as a round takes them in: read, checked, sorted out by cursor, and noted down for the plan."""
