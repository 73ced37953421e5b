"""What a Spark session needs to reach a root: jars, settings of stores, and a quiet JVM."""
