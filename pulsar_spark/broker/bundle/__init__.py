"""A bundle in memory: its topics, policies and clocks, how it is loaded, numbered and split."""
