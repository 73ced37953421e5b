"""Defaults of options that commands and jobs show before they import more."""

DEFAULT_SUBSCRIPTIONS = 100
LOOPBACK = "127.0.0.1"
