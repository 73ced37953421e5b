"""The module ``pulsar.tableview``, for scripts that import from it."""

from pulsar_spark.client.readers.table_view import TableView

__all__ = ["TableView"]
