"""``pulsar.tableview`` of scripts."""

from pulsar_spark.client.readers.table_view import TableView

__all__ = ["TableView"]
