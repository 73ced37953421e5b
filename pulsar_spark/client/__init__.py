"""The API of the ``pulsar`` package, without a JVM: the classes that an application uses, and their helpers."""
