"""The API of the ``pulsar`` package, without a JVM: what an application calls, and what directly serves it."""
