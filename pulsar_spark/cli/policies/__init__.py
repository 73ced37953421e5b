"""Policies of namespaces and topics, and the commands that set them."""
