"""``pulsar.tableview`` of scripts."""

from pulsar_spark.client.table_view import TableView

__all__ = ["TableView"]
