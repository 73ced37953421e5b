"""The frame of a delivery: which rows of which files, one row a chunked message, each consumer its own."""
