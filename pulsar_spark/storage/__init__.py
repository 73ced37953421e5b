"""Delta's logs and files, which no other package reads or writes: commits, tables, numbering, entries by position,
names and paths, leases, durability, repair.
"""
