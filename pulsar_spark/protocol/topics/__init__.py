"""Names of topics, their partitions and bundles, and the ids and numbers of what is published to them."""
