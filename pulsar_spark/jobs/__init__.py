"""Jobs for schedulers and spark-submit, a module each: ``python -m pulsar_spark.jobs.consume --help``."""
