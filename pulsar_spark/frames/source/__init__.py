"""The data source ``format("pulsar_spark")``: batch and stream, read and write, in Spark's Python workers."""
