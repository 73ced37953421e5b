"""Topics, namespaces and bundles of a root, and what a topic's own table keeps: partitions, schemas, producers."""
