"""Base classes of Pulsar Functions, with the names of the ``pulsar`` package. Nothing here runs functions."""
