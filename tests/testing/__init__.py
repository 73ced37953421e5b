"""The broker, the clock and the plugin for applications' tests."""
