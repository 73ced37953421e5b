"""The only place that knows Delta's log and files: commits, tables, numbering, entries by position, names and paths,
leases, durability, repair."""
