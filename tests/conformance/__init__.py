"""Outcomes of scenarios that were recorded on Apache Pulsar, beside ours."""
