"""Names of topics, their partitions and bundles, and the ids and numbers of their messages."""
