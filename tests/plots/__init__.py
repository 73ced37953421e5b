"""Pictures of ``pulsar_spark.plots``, by what their axes hold."""
