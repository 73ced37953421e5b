"""Numbers of a root for Prometheus, under the names that Pulsar gives them, and the server that shows them."""
