"""``python -m pulsar_spark.cli``: the command line without its entry point."""

from pulsar_spark.cli import main

if __name__ == "__main__":
    main()
