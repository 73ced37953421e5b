"""Schemas of topics, and which of them can read what another wrote."""
