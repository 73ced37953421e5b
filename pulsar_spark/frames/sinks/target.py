"""Where a sink writes: the folder of a Delta table, or a Delta table that a catalog knows by name."""

import os
import re
from pathlib import Path

from deltalake import DeltaTable
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from pulsar_spark.errors import InvalidConfiguration, OperationNotSupported
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.table_lock import append_lock

_PART = r"(?:\w+|`[^`]+`)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART}){{1,2}}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FILE = re.compile(r"file:(?://)?(?=/)")


class Target:
    """The table *given* by its path, or by ``catalog.schema.table`` or ``schema.table``. A text with a slash is a
    path; :class:`InvalidConfiguration` for one that is neither."""

    def __init__(self, given: str | os.PathLike):
        self._name, self._folder = "", Path()
        text = _FILE.sub("", str(given))
        if _SCHEME.match(text):
            raise _not_local(text)
        if isinstance(given, os.PathLike) or os.sep in text:
            self._folder = Path(text).expanduser().absolute()
        elif _NAME.fullmatch(text):
            self._name = text
        else:
            raise InvalidConfiguration(
                f"target {text!r} is neither a path nor a table of a catalog: give a path with a slash, such as "
                f"{f'./{text}'!r}, or a name with its schema, such as 'schema.table'"
            )

    def __str__(self) -> str:
        return self._name or str(self._folder)

    def find(self, rows: DataFrame) -> Path:
        """The folder of the table, which is created with the schema of *rows* if it is missing.

        :class:`InvalidConfiguration` for a name that the catalog refuses, or that is no Delta table;
        :class:`OperationNotSupported` for a table in an object store."""
        if self._folder != Path() and TableLog(self._folder).exists():
            return self._folder
        if self._name:
            try:
                self._folder = _registered(self._name, rows)
            except (AnalysisException, ParseException) as refused:
                raise InvalidConfiguration(
                    f"target {self._name!r}: {str(refused).splitlines()[0]}; give a Delta table of the session's "
                    "catalogs, or a path, which has a slash"
                ) from refused
        else:
            with append_lock(self._folder):
                DeltaTable.create(str(self._folder), rows.limit(0).toArrow().schema, mode="ignore")
        return self._folder


def _registered(name: str, rows: DataFrame) -> Path:
    """The folder of the catalog's table *name*, which is created with the schema of *rows* if it is missing."""
    spark = rows.sparkSession
    if not spark.catalog.tableExists(name):
        schema = ".".join(re.findall(_PART, name)[:-1])
        if not spark.catalog.databaseExists(schema):  # Spark would end the write with a trace of Java
            raise InvalidConfiguration(f"target {name!r}: there is no schema {schema!r}: create it, or give another")
        rows.limit(0).write.format("delta").mode("ignore").saveAsTable(name)
    detail = spark.sql(f"DESCRIBE DETAIL {name}").first()
    if detail is None or detail["format"] != "delta":
        raise InvalidConfiguration(f"target {name!r} is no Delta table: give one, or a name that is free")
    location = _FILE.sub("", detail["location"])
    if _SCHEME.match(location):
        raise _not_local(location, f"target {name!r} ")
    return Path(location)


def _not_local(place: str, of: str = "") -> OperationNotSupported:
    return OperationNotSupported(
        f"{of}{place!r} lies in an object store, where two writers of Delta tables may take one version: give a local "
        "folder, or write in your own function"
    )
