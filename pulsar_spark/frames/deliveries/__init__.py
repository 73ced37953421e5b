"""The frame of a delivery: the rows of its entries, with one row for a chunked message."""
