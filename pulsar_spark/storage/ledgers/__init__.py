"""Which position each entry has and in which publish it lies: the ``ledgers`` table, read and kept in memory."""
