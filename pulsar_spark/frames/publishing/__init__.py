"""Publishing DataFrames: from a frame's columns to rows of a topic, one commit a batch."""
