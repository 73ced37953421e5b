"""Views for SQL, statistics, history, and the catalog of what exists. Nothing here decides anything."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulsar_spark.views.views import create_views

__all__ = ["create_views"]


def __getattr__(name: str):
    if name == "create_views":
        from pulsar_spark.views.views import create_views

        return create_views
    raise AttributeError(name)
