"""Delta tables without a JVM: following a log, writing commits and data files, and reading rows."""
